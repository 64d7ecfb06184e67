"""Steady state: whether the measured window shows one level, and how sure its mean is."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.measure.statistics import Shift, largest_shift, series_interval, trend

STEADY, NOT_STEADY, TOO_SHORT = "steady", "not steady", "too short to tell"
MIN_SECONDS = 20
BATCHES = 20
SIGNIFICANCE = 0.01
DRIFT = 0.05
"""What moves the rate by less than this share is of no consequence."""
SHIFT_Z = 7.0
"""Among all stretches of 20 batches of pure noise, also of noise whose neighbours correlate by 0.3, one
stands out by more than this in less than one window of a hundred (by simulation)."""
UNCLEAR = 0.2
"""Where a long part of the window differs by more than this from the rest, chance or not, or the mean is not
known better than this, nobody can say that the rate was steady."""


def steady_state(
    columns: Mapping[str, Sequence[float]], window_seconds: float, step_seconds: int = 1
) -> dict[str, Any]:
    """Judge the rates of tokens and of bytes on the timeline (warm-up is not in it)."""
    whole_steps = int(window_seconds + 1e-9) // step_seconds
    byte_columns = [values for name, values in columns.items() if name.endswith("_bytes")]
    series = {
        "tokens": list(columns.get("tokens", ()))[:whole_steps],
        "bytes": [sum(step) for step in zip(*byte_columns, strict=True)][:whole_steps],
    }
    # What never happens, such as tokens of a node that only prefills, cannot be unsteady.
    active = {name: values for name, values in series.items() if any(values)} or series
    judged = {name: judge(values, step_seconds) for name, values in active.items()}
    for verdict in (NOT_STEADY, TOO_SHORT):
        for name, item in judged.items():
            if item["verdict"] == verdict:
                return {"verdict": verdict, "reason": _reason(name, item), **judged}
    reason = "Neither a trend nor a shift of consequence in tokens or bytes."
    return {"verdict": STEADY, "reason": reason, **judged}


def _reason(name: str, item: Mapping[str, Any]) -> str:
    """Why a series is not called steady, in a sentence."""
    if "drift" not in item:
        return (
            f"{item['seconds']} measured seconds with enough activity are too few to tell whether "
            f"the rate was steady ({MIN_SECONDS} needed)."
        )
    half_width = item["ci95_relative_half_width"]
    if item["verdict"] == TOO_SHORT and half_width > UNCLEAR:
        return f"The mean rate of {name} is known to ±{half_width:.0%} only: it varies too much to tell."
    if item["verdict"] == NOT_STEADY and item["drifts"]:
        return f"The rate of {name} drifted by {item['drift']:+.0%} over the measured window: not steady."
    from_sec, to_sec = item["shift_seconds"]
    moved = (
        f"The rate of {name} from second {from_sec} to {to_sec} differs by {item['shift']:+.0%} from the rest"
    )
    return f"{moved}: not steady." if item["verdict"] == NOT_STEADY else f"{moved}, which may be chance."


def judge(values: Sequence[float], step_seconds: int = 1) -> dict[str, Any]:
    """One series of whole steps: its trend, its largest shift, the interval of its mean by batch means."""
    count = len(values)
    batches = [mean / step_seconds for mean in batch_means(values)] if count >= MIN_SECONDS else []
    if not any(batches):
        # Asked of the batches: all that happened may lie in the odd seconds that they leave out.
        return {"verdict": TOO_SHORT, "seconds": count * step_seconds}
    interval = series_interval(batches)
    assert interval is not None, "batches of 20 seconds or more are at least two"
    found = trend(batches)
    drift = found.slope * len(batches) / interval.mean
    drifts = found.p_value < SIGNIFICANCE and abs(drift) > DRIFT
    shift = largest_shift(batches, shortest=max(2, len(batches) // 10))
    shifts = shift.z_score > SHIFT_Z and abs(shift.difference) > DRIFT * interval.mean
    unclear = False
    if not (drifts or shifts):
        shift = largest_shift(batches, shortest=len(batches) // 4)
        half_width = (interval.high - interval.low) / 2
        unclear = max(abs(shift.difference), half_width) > UNCLEAR * interval.mean
    batch_seconds = count // len(batches) * step_seconds
    return {
        "verdict": NOT_STEADY if drifts or shifts else TOO_SHORT if unclear else STEADY,
        "seconds": count * step_seconds,
        "batches": len(batches),
        "batch_seconds": batch_seconds,
        "mean_per_sec": interval.mean,
        "ci95_low": max(interval.low, 0.0),
        "ci95_high": interval.high,
        "ci95_relative_half_width": interval.relative_half_width,
        "drift": drift,
        "drifts": drifts,
        "p_value": found.p_value,
        "shift": shift.difference / interval.mean,
        "shift_seconds": _seconds(shift, batch_seconds, count * step_seconds),
    }


def _seconds(shift: Shift, batch_seconds: int, seconds: int) -> list[int]:
    """From and to which second of the window the stretch reaches."""
    skipped = seconds % batch_seconds
    return [skipped + place * batch_seconds for place in (shift.start, shift.stop)]


def batch_means(values: Sequence[float]) -> list[float]:
    """Means of consecutive batches of equal length, about 20 of them; the oldest odd seconds are left out.

    Neighbours of long batches are nearly independent, which single seconds are not.
    """
    length = max(1, len(values) // BATCHES)
    number = len(values) // length
    skipped = len(values) - number * length
    return [sum(values[start : start + length]) / length for start in range(skipped, len(values), length)]
