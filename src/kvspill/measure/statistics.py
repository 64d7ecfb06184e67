"""Small statistics of small samples: spread, Student's interval, the trend of a series."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the two-sided confidence interval of its sample."""

    mean: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float | None:
        return (self.high - self.low) / 2 / abs(self.mean) if self.mean else None


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t: exact for 1 and 2 degrees of freedom, else by expansion (error < 0.5 %)."""
    if freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, not {freedom}")
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        distance = 2 * probability - 1
        return distance * math.sqrt(2 / (1 - distance * distance))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / math.pow(freedom, power) for power, term in enumerate(terms, start=1))


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The mean and its interval, or None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    half = student_quantile((1 + confidence) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Standard deviation over mean, or None where it has no meaning."""
    if len(values) < 2 or not fmean(values):
        return None
    return stdev(values) / abs(fmean(values))


@dataclass(frozen=True, slots=True)
class Trend:
    """Whether a series goes up or down: Mann-Kendall's test and the Theil-Sen slope per step."""

    slope: float
    p_value: float


def trend(values: Sequence[float]) -> Trend:
    """Two-sided Mann-Kendall test with ties and continuity correction; needs three values or more."""
    series = np.asarray(values, dtype=np.float64)
    count = len(series)
    if count < 3:
        raise ValueError(f"a trend needs at least 3 values, not {count}")
    earlier, later = np.triu_indices(count, k=1)
    differences = series[later] - series[earlier]
    score = int(np.sign(differences).sum())
    _, ties = np.unique(series, return_counts=True)
    variance = _pairs_variance(count) - sum(_pairs_variance(int(tied)) for tied in ties)
    slope = float(np.median(differences / (later - earlier)))
    if score == 0 or variance <= 0:
        return Trend(slope, 1.0)
    z = (abs(score) - 1) / math.sqrt(variance)
    return Trend(slope, 2 * (1 - NormalDist().cdf(z)))


def _pairs_variance(count: int) -> float:
    return count * (count - 1) * (2 * count + 5) / 18
