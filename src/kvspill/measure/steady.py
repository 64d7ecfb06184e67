"""Steady state: whether the measured window shows a level or a trend, and how sure its mean is."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.measure.statistics import mean_interval, trend

STEADY, NOT_STEADY, TOO_SHORT = "steady", "not steady", "too short to tell"
MIN_SECONDS = 20
BATCHES = 20
SIGNIFICANCE = 0.01
DRIFT = 0.05
"""A trend that moves the rate by less than this share over the whole window is of no consequence."""


def steady_state(columns: Mapping[str, Sequence[int]], window_seconds: float) -> dict[str, Any]:
    """Judge the rates of tokens and of bytes on the one-second timeline (warm-up is not in it)."""
    whole_seconds = int(window_seconds + 1e-9)
    byte_columns = [values for name, values in columns.items() if name.endswith("_bytes")]
    series = {
        "tokens": list(columns.get("tokens", ()))[:whole_seconds],
        "bytes": [sum(second) for second in zip(*byte_columns, strict=True)][:whole_seconds],
    }
    judged = {name: judge(values) for name, values in series.items()}
    verdicts = [item["verdict"] for item in judged.values()]
    if NOT_STEADY in verdicts:
        worst = next(name for name, item in judged.items() if item["verdict"] == NOT_STEADY)
        drift = judged[worst]["drift"]
        reason = f"The rate of {worst} drifted by {drift:+.0%} over the measured window: not steady."
        return {"verdict": NOT_STEADY, "reason": reason, **judged}
    if TOO_SHORT in verdicts:
        reason = (
            f"{whole_seconds} measured seconds with enough activity are too few to tell whether "
            f"the rate was steady ({MIN_SECONDS} needed)."
        )
        return {"verdict": TOO_SHORT, "reason": reason, **judged}
    return {"verdict": STEADY, "reason": "No trend of consequence in tokens or bytes.", **judged}


def judge(values: Sequence[float]) -> dict[str, Any]:
    """One series of whole seconds: its trend and the interval of its mean by batch means."""
    count = len(values)
    batches = batch_means(values) if count >= MIN_SECONDS else []
    if not any(batches):
        # Asked of the batches: all that happened may lie in the odd seconds that they leave out.
        return {"verdict": TOO_SHORT, "seconds": count}
    found = trend(batches)
    interval = mean_interval(batches)
    assert interval is not None, "batches of 20 seconds or more are at least two"
    drift = found.slope * len(batches) / interval.mean
    moves = found.p_value < SIGNIFICANCE and abs(drift) > DRIFT
    return {
        "verdict": NOT_STEADY if moves else STEADY,
        "seconds": count,
        "batches": len(batches),
        "batch_seconds": count // len(batches),
        "mean_per_sec": interval.mean,
        "ci95_low": interval.low,
        "ci95_high": interval.high,
        "ci95_relative_half_width": interval.relative_half_width,
        "drift": drift,
        "p_value": found.p_value,
    }


def batch_means(values: Sequence[float]) -> list[float]:
    """Means of consecutive batches of equal length, about 20 of them; the oldest odd seconds are left out.

    Batches are long enough that neighbours are nearly independent, which single seconds are not.
    """
    length = max(1, len(values) // BATCHES)
    number = len(values) // length
    skipped = len(values) - number * length
    return [sum(values[start : start + length]) / length for start in range(skipped, len(values), length)]
