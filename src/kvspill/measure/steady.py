"""Steady state: whether the measured window shows one level, and how sure its mean is."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.measure.shifts import Shift, Shifts, find_shifts
from kvspill.measure.statistics import series_interval, trend
from kvspill.measure.storage_speed import Speed, storage_speed
from kvspill.texts import counted

STEADY, NOT_STEADY, TOO_SHORT = "steady", "not steady", "too short to tell"
MIN_SECONDS = 20
BATCHES = 30
DRIFT = 0.05
"""What moves the rate by less than this share is of no consequence."""
MEAN_MOVED = 0.02
"""Nor what moves the mean of the window by less than this: a short stretch must differ by more."""
SHIFT_Z = 7.0
"""What a device does by chance shows no shift beyond this, in units of its error."""
FOUND_Z = 1.5
"""A step that is larger by this is found four times out of five."""
UNCLEAR = 0.2
"""Where the mean is not known better than this, nobody can say that the rate was steady."""
UNCLEAR_STEP = 1.0
"""Nor where the rate could have doubled unnoticed."""
FEW_REQUESTS = 30
"""The rates of fewer requests tell of each of them, not of a level."""
CLOSED_SECONDS = 120.0
"""Where users wait for answers, a busy second makes up for an idle one. Short windows hide how well: the
interval of a mean is at most 1 + so many seconds / window times as wide as it need be."""


def load_z(seconds: float) -> float:
    """Stationary loads show a shift beyond this and of consequence in less than one window of a hundred.

    Who asks for what changes for some seconds by chance, and a short window cannot tell that from a shift.
    """
    return 6.0 + 180.0 / seconds


SPEED = "storage_speed"
_SAID = {"tokens": "rate of tokens", "bytes": "rate of bytes", SPEED: "speed of the storage"}
TENTH = 0.1


def steady_state(
    columns: Mapping[str, Sequence[float]], window_seconds: float, step_seconds: int = 1, closed: bool = False
) -> dict[str, Any]:
    """Judge the rates of tokens and of bytes and the storage's speed on the timeline (warm-up is not in it).

    closed: users wait for answers, so that intervals are wider than they need be.
    """
    whole_steps = int(window_seconds + 1e-9) // step_seconds
    byte_columns = [values for name, values in columns.items() if name.endswith("_bytes")]
    series = {
        "tokens": list(columns.get("tokens", ()))[:whole_steps],
        "bytes": [sum(step) for step in zip(*byte_columns, strict=True)][:whole_steps],
    }
    # What never happens, such as tokens of a node that only prefills, cannot be unsteady.
    active = {name: values for name, values in series.items() if any(values)} or series
    shift_z = load_z(max(MIN_SECONDS, whole_steps * step_seconds))
    judged = {name: judge(values, step_seconds, closed, shift_z) for name, values in active.items()}
    completed = sum(columns["requests"][:whole_steps]) if "requests" in columns else FEW_REQUESTS
    if completed < FEW_REQUESTS:
        judged = {name: {**item, "verdict": TOO_SHORT} for name, item in judged.items()}
    speed = storage_speed(columns, whole_steps, BATCHES, MIN_SECONDS)
    if speed is not None:
        judged[SPEED] = judge_speed(speed, whole_steps * step_seconds, step_seconds)
    for name, item in reversed(judged.items()):
        if item["verdict"] == NOT_STEADY:
            return {"verdict": NOT_STEADY, "reason": _moved(name, item), **judged}
    for name in active:
        if judged[name]["verdict"] == TOO_SHORT:
            seconds = whole_steps * step_seconds
            few = 0 < completed < FEW_REQUESTS and "drift" in judged[name]
            text = _too_few(int(completed), seconds) if few else _unclear(name, judged[name])
            reason = text + _speed_was_steady(judged)
            return {"verdict": TOO_SHORT, "reason": reason, **judged}
    best = min(active, key=lambda name: float(judged[name]["resolution"]))
    found = f"a step of {_visible(judged[best])} in {best} would have been found."
    reason = f"Neither a trend nor a shift of consequence in tokens or bytes; {found}"
    return {"verdict": STEADY, "reason": reason + _speed_was_steady(judged), **judged}


def _visible(item: Mapping[str, Any]) -> str:
    """The step that is found: also one without noise must be of consequence."""
    return f"{math.ceil(100 * max(1.1 * DRIFT, item['resolution']))}%"


def _speed_was_steady(judged: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence to add, where there is something to say."""
    item = judged.get(SPEED)
    if item is None or item["verdict"] != STEADY:
        return ""
    return f" The {_SAID[SPEED]} was steady: a step of {_visible(item)} in it would have been found."


def _too_few(requests: int, seconds: int) -> str:
    needed = _rounded_up(seconds * FEW_REQUESTS / requests)
    return (
        f"{counted(requests, 'request')} completed: too few to tell whether their rate was steady "
        f"({FEW_REQUESTS} needed); {needed:,} s would be enough."
    )


def _unclear(name: str, item: Mapping[str, Any]) -> str:
    """Why nobody can say whether a rate was steady."""
    if "drift" not in item:
        return (
            f"{item['seconds']} measured seconds with enough activity are too few to tell whether "
            f"the rate was steady ({MIN_SECONDS} needed)."
        )
    half_width, step = item["ci95_relative_half_width"], item["resolution"]
    text = f"The mean rate of {name} is known to ±{half_width:.0%} only: it varies too much"
    if half_width <= UNCLEAR:
        text = f"The rate of {name} varies so much that only a change of {step:.0%} or more would be noticed"
    return f"{text}; {item['seconds_needed']:,} s would be enough."


def _moved(name: str, item: Mapping[str, Any]) -> str:
    """What is not steady."""
    if item["drifts"]:
        return f"The {_SAID[name]} drifted by {item['drift']:+.0%} over the measured window: not steady."
    from_sec, to_sec = item["shift_seconds"]
    return (
        f"The {_SAID[name]} from second {from_sec} to {to_sec} differs by {item['shift']:+.0%} from the "
        "rest: not steady."
    )


def judge(
    values: Sequence[float], step_seconds: int = 1, closed: bool = False, shift_z: float = SHIFT_Z
) -> dict[str, Any]:
    """One series of whole steps: its drift, its largest shift, the interval of its mean."""
    count = len(values)
    batches = [mean / step_seconds for mean in batch_means(values)] if count >= MIN_SECONDS else []
    if not any(batches):
        # Asked of the batches: all that happened may lie in the odd seconds that they leave out.
        return {"verdict": TOO_SHORT, "seconds": count * step_seconds}
    interval = series_interval([value / step_seconds for value in values])
    assert interval is not None, "20 steps are enough for an interval"
    mean, seconds = interval.mean, count * step_seconds
    found = find_shifts(batches, DRIFT * mean, MEAN_MOVED * mean)
    most = _largest(found, shift_z)
    half_width = (interval.high - interval.low) / 2 / mean
    resolution = (shift_z + FOUND_Z) * found.step_error / mean
    longer = max(half_width / UNCLEAR, resolution / UNCLEAR_STEP)
    batch_seconds = count // len(batches) * step_seconds
    return {
        "verdict": NOT_STEADY if most is not None else TOO_SHORT if longer > 1 else STEADY,
        "seconds": seconds,
        "batches": len(batches),
        "batch_seconds": batch_seconds,
        "mean_per_sec": mean,
        "ci95_low": max(interval.low, 0.0),
        "ci95_high": interval.high,
        "ci95_relative_half_width": half_width,
        "ci95_wider_than_needed_by_at_most": 1 + CLOSED_SECONDS / seconds if closed else None,
        "drift": found.drift.difference / mean,
        "drifts": most is found.drift,
        "p_value": trend(batches).p_value,
        "shift": found.largest.difference / mean,
        "shift_seconds": _seconds(found.largest, batch_seconds, seconds),
        "resolution": resolution,
        "seconds_needed": _rounded_up(seconds * longer**2) if longer > 1 else seconds,
        "seconds_for_a_tenth": _seconds_for_a_tenth(seconds, resolution),
    }


def judge_speed(speed: Speed, seconds: int, step_seconds: int = 1) -> dict[str, Any]:
    """The storage's speed while it was at work: its drift, its largest shift."""
    found = find_shifts(speed.relative, DRIFT, MEAN_MOVED)
    most, resolution = _largest(found, SHIFT_Z), (SHIFT_Z + FOUND_Z) * found.step_error
    ends = (speed.edges[found.largest.start], speed.edges[found.largest.stop])
    return {
        "verdict": NOT_STEADY if most is not None else TOO_SHORT if resolution > UNCLEAR_STEP else STEADY,
        "seconds": seconds,
        "batches": len(speed.relative),
        "busy_seconds": speed.busy_seconds,
        "bytes_per_busy_sec": speed.bytes_per_busy_sec,
        "drift": found.drift.difference,
        "drifts": most is found.drift,
        "shift": found.largest.difference,
        "shift_seconds": [round(end * step_seconds) for end in ends],
        "resolution": resolution,
        "seconds_for_a_tenth": _seconds_for_a_tenth(seconds, resolution),
    }


def _largest(found: Shifts, shift_z: float) -> Shift | None:
    """The drift or the stretch that chance does not explain."""
    shifted = [shift for shift in (found.drift, found.largest) if shift.z_score > shift_z]
    return max(shifted, key=lambda shift: shift.z_score, default=None)


def _seconds_for_a_tenth(seconds: int, resolution: float) -> int:
    """How long a window finds a step of a tenth, four times out of five."""
    return _rounded_up(max(MIN_SECONDS, seconds * (resolution / TENTH) ** 2))


def _rounded_up(seconds: float) -> int:
    """To two digits."""
    unit = int(10 ** max(0, math.floor(math.log10(seconds)) - 1))
    return math.ceil(seconds / unit) * unit


def _seconds(shift: Shift, batch_seconds: int, seconds: int) -> list[int]:
    """From and to which second of the window the stretch reaches."""
    skipped = seconds % batch_seconds
    return [skipped + place * batch_seconds for place in (shift.start, shift.stop)]


def batch_means(values: Sequence[float]) -> list[float]:
    """Means of consecutive batches of equal length, about 30 of them; the oldest odd seconds are left out."""
    length = max(1, len(values) // BATCHES)
    number = len(values) // length
    skipped = len(values) - number * length
    return [sum(values[start : start + length]) / length for start in range(skipped, len(values), length)]
