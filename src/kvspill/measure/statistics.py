"""Statistics of small samples: spreads, intervals of means and medians, the noise and the trend of a series.

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

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, or a difference of means, with its two-sided 95 % interval."""

    mean: float
    low: float
    high: float
    p_value: float | None = None
    """How often chance alone gives a value as far from zero, where the true one is zero."""

    @property
    def relative_half_width(self) -> float | None:
        return (self.high - self.low) / 2 / abs(self.mean) if self.mean else None


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    if freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, not {freedom}")
    return float(stdtrit(freedom, probability))


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The mean and its interval, or None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    error = stdev(values) / math.sqrt(len(values))
    half = student_quantile((1 + CONFIDENCE) / 2, len(values) - 1) * error
    return Interval(mean, mean - half, mean + half, _p_value(mean, error, len(values) - 1))


def _p_value(mean: float, error: float, freedom: int) -> float:
    """Two-sided, by Student's t."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(mean) / error)) if error else float(mean == 0)


def holm(p_values: Sequence[float]) -> list[bool]:
    """Which of several findings hold so that all of them hold together in 95 % of cases (Holm)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    found = [False] * len(p_values)
    for rank, place in enumerate(order):
        if p_values[place] > (1 - CONFIDENCE) / (len(p_values) - rank):
            break
        found[place] = True
    return found


def runs_needed(deviation: float, difference: float, *, paired: bool) -> int | None:
    """Runs a side that show such a difference four times out of five; None for more than a thousand.

    deviation: of the pairs' differences, or of the runs of a side.
    """
    for runs in range(2, 1001):
        freedom = runs - 1 if paired else 2 * (runs - 1)
        error = deviation * math.sqrt((1 if paired else 2) / runs)
        if (student_quantile(0.975, freedom) + student_quantile(0.8, freedom)) * error <= abs(difference):
            return runs
    return None


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Mean of second less mean of first with Welch's interval; each needs two values or more."""
    from scipy.stats import ttest_ind

    difference = fmean(second) - fmean(first)
    if len(set(first)) == 1 and len(set(second)) == 1:
        return Interval(difference, difference, difference, float(difference == 0))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Runs that are nearly equal are no reason to alarm the user about rounding.
        warnings.simplefilter("ignore", RuntimeWarning)
        found: Any = ttest_ind(second, first, equal_var=False)
        ends = found.confidence_interval(CONFIDENCE)
    return Interval(difference, float(ends.low), float(ends.high), float(found.pvalue))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % percentile bootstrap of the median; the same values always give the same interval."""
    from scipy.stats import bootstrap

    if len(set(values)) == 1:
        return values[0], values[0]
    found: Any = bootstrap(
        (values,), np.median, n_resamples=2000, confidence_level=CONFIDENCE, method="percentile", rng=1
    )
    low, high = found.confidence_interval
    # It interpolates, and rounding may lead a hair beyond the values.
    return max(min(values), float(low)), min(max(values), float(high))


def wilson_interval(hits: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share, which takes the trials for independent."""
    share = hits / total
    z = student_quantile(0.975, max(1, total - 1))
    scale = 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / scale
    return middle - half, middle + half


def percentile(values: Sequence[float] | NDArray[Any], rank: float) -> float:
    """The nearest-rank percentile: a value that was measured."""
    return float(np.percentile(values, rank, method="inverted_cdf"))


def interpolated(values: Sequence[float], rank: float) -> float:
    """The percentile between the two values next to it, for a few trials, of which none stands for a rank."""
    return float(np.percentile(values, rank))


SLOW_WAVES = 5
"""From so many slow cosines the noise of a mean is estimated, with as many degrees of freedom."""


def slow_waves(values: Sequence[float] | NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Strength of the `count` slowest cosines in a series: half a wave over the whole of it, a whole wave, …

    Of a series without correlation all have the variance of one value. Where neighbours resemble each other
    the slow ones are stronger, where a busy second follows an idle one they are weaker: their mean square is
    the variance that counts for the mean of the series.
    """
    series = np.asarray(values, dtype=np.float64)
    found: NDArray[np.float64] = cosines(len(series), count) @ (series - series.mean())
    return found


def cosines(length: int, count: int) -> NDArray[np.float64]:
    """The slowest cosines over so many places, a row each, of length one."""
    places = (np.arange(length) + 0.5) / length
    found: NDArray[np.float64] = np.cos(np.pi * np.outer(np.arange(1, count + 1), places))
    return found * math.sqrt(2 / length)


def series_interval(values: Sequence[float]) -> Interval | None:
    """The mean of a series whose values depend on their neighbours, in either way, and its 95 % interval.

    None for fewer than twice as many values as there are slow waves.
    """
    if len(values) < 2 * SLOW_WAVES:
        return None
    waves = slow_waves(values, SLOW_WAVES)
    error = math.sqrt(float(waves @ waves) / SLOW_WAVES / len(values))
    mean, half = fmean(values), student_quantile(0.975, SLOW_WAVES) * error
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
