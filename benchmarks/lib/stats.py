"""The paired ratio of interleaved measurements: its median with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kvspill.measure.statistics import median_interval


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
    return Ratio(median(ratios), *median_interval(ratios), len(ratios))
