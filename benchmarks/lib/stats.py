"""Statistics of interleaved measurements: paired ratios, their median with an interval, quantiles."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of paired ratios with the 95 % bootstrap interval of that median."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Ours over theirs, round by round: what both suffered in the same round cancels out."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"pairs needed: {len(ours)} values against {len(theirs)}")
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, high = median_interval(ratios)
    return Ratio(median(ratios), low, high, len(ratios))


def median_interval(values: Sequence[float], confidence: float = 0.95, seed: int = 1) -> tuple[float, float]:
    """Percentile bootstrap of the median; the same values always give the same interval."""
    rng = random.Random(seed)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    tail = (1 - confidence) / 2
    return medians[int(tail * _RESAMPLES)], medians[int((1 - tail) * _RESAMPLES) - 1]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, _rank(share, len(ordered)) - 1))]


def _rank(share: float, count: int) -> int:
    # Rounded before it is rounded up: 0.95 x 100 is a hair above 95 in binary.
    exact = round(share * count, 9)
    return int(exact) + (exact > int(exact))


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation: standard deviation over mean."""
    return stdev(values) / fmean(values)
