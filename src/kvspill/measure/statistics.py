"""Statistics of small samples: spreads, intervals of means and medians, the trend and the shifts of a series.

scipy is imported where it is used: a run pays for scipy.special (0.1 s), never for scipy.stats (0.6 s).
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, or a difference of means, with its two-sided confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float | None:
        return (self.high - self.low) / 2 / abs(self.mean) if self.mean else None


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    if freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, not {freedom}")
    return float(stdtrit(freedom, probability))


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The mean and its interval, or None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    half = student_quantile((1 + confidence) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def difference_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> Interval:
    """Mean of second less mean of first with Welch's interval; each needs two values or more."""
    from scipy.stats import ttest_ind

    difference = fmean(second) - fmean(first)
    if len(set(first)) == 1 and len(set(second)) == 1:
        return Interval(difference, difference, difference)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Runs that are nearly equal are no reason to alarm the user about rounding.
        warnings.simplefilter("ignore", RuntimeWarning)
        found: Any = ttest_ind(second, first, equal_var=False)
        ends = found.confidence_interval(confidence)
    return Interval(difference, float(ends.low), float(ends.high))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap of the median; the same values always give the same interval."""
    from scipy.stats import bootstrap

    if len(set(values)) == 1:
        return values[0], values[0]
    found: Any = bootstrap(
        (values,), np.median, n_resamples=2000, confidence_level=confidence, method="percentile", rng=1
    )
    low, high = found.confidence_interval
    # It interpolates, and rounding may lead a hair beyond the values.
    return max(min(values), float(low)), min(max(values), float(high))


def percentile(values: Sequence[float] | NDArray[Any], rank: float) -> float:
    """The nearest-rank percentile: a value that was measured."""
    return float(np.percentile(values, rank, method="inverted_cdf"))


def series_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The mean of a series and its interval, widened where neighbours resemble each other.

    Values that follow one another say less than independent ones: the variance of their mean is larger
    by (1 + r) / (1 - r), r being the correlation of neighbours (with its small-sample bias put right).
    """
    plain = mean_interval(values, confidence)
    if plain is None:
        return None
    wider = math.sqrt((1 + _neighbours(values)) / (1 - _neighbours(values)))
    half = (plain.high - plain.low) / 2 * wider
    return Interval(plain.mean, plain.mean - half, plain.mean + half)


_CORRELATION_MAX = 0.9


def _neighbours(values: Sequence[float]) -> float:
    """The correlation of neighbours, from 0 (also where it is negative) to 0.9."""
    series = np.asarray(values, dtype=np.float64) - fmean(values)
    spread = float(series @ series)
    if spread == 0:
        return 0.0
    found = float(series[1:] @ series[:-1]) / spread
    return min(max(found + (1 + 4 * found) / len(values), 0.0), _CORRELATION_MAX)


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
    """Two-sided Mann-Kendall test with ties and continuity correction; needs three values or more.

    scipy.stats has the slope, but the test without the correction only.
    """
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


@dataclass(frozen=True, slots=True)
class Shift:
    """A stretch of a series whose level differs from that of the rest."""

    start: int
    stop: int
    difference: float
    """The stretch's mean less the mean of the rest."""
    z_score: float
    """That difference in units of its error, as the steps between neighbours show it."""


_MEDIAN_STEP = 0.954
"""The median step between neighbours of independent normal values, in standard deviations."""


def largest_shift(values: Sequence[float], shortest: int) -> Shift:
    """The stretch, at least `shortest` values long, that stands out most: a step, a hump, a collapse.

    The noise is taken from the steps between neighbours, which a shift of level leaves as they are.
    """
    series = np.asarray(values, dtype=np.float64)
    count = len(series)
    steps = np.abs(np.diff(series))
    noise = float(np.median(steps)) / _MEDIAN_STEP or math.sqrt(float(steps @ steps) / len(steps) / 2)
    sums = np.concatenate([[0.0], np.cumsum(series)])
    start, stop = np.triu_indices(count + 1, k=shortest)
    # Where the rest is one stretch, too, the shorter of the two is the one that stands out.
    edge = (start == 0) | (stop == count)
    named = ~edge | (stop - start <= count // 2)
    start, stop = start[named], stop[named]
    length, inside = stop - start, sums[stop] - sums[start]
    difference = inside / length - (sums[-1] - inside) / (count - length)
    error = noise * np.sqrt(1 / length + 1 / (count - length))
    z_scores = np.abs(difference) / error if noise else np.zeros(len(length))
    most = int(np.argmax(z_scores))
    return Shift(int(start[most]), int(stop[most]), float(difference[most]), float(z_scores[most]))
