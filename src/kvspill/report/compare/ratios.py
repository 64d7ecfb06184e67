"""The statistics of ratios: intervals on the logarithm, geometric means, win rates, verdicts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from statistics import geometric_mean as _geometric_mean
from typing import Any

import numpy as np

from kvspill.measure.statistics import difference_interval, mean_interval
from kvspill.result.metrics.metric import Better

BETTER = "better"
WORSE = "worse"
ALIKE = "not distinguishable"
CANNOT_TELL = "cannot tell"
DIFFERS = "differs"
INDICATIVE = {said: f"{said} (indicative)" for said in (BETTER, WORSE, DIFFERS)}
"""What a line says by itself, and what chance would often say in one of so many lines."""
NO_RANK = "no rank"
"""A run of a side is faulty or was crowded."""

_WIDEST = 700.0
_ROUNDING = 1e-9
"""Ratios of equal numbers differ from 1 by less than this."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """B over A with its confidence interval; without an interval there was too little to tell from."""

    value: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    """How often chance alone shows as much where there is no difference."""


def geometric_mean(values: Sequence[float]) -> float | None:
    """None where a value is not positive: a ratio of nothing has no logarithm."""
    if not values or min(values) <= 0:
        return None
    return _geometric_mean(values)


def ratio_of_samples(first: Sequence[float], second: Sequence[float]) -> Ratio | None:
    """Geometric mean of second over that of first, with Welch's interval on the logarithms."""
    if not first or not second or min(*first, *second) <= 0:
        return None
    logs_first, logs_second = [math.log(v) for v in first], [math.log(v) for v in second]
    if len(first) < 2 or len(second) < 2:
        return Ratio(math.exp(fmean(logs_second) - fmean(logs_first)))
    found = difference_interval(logs_first, logs_second)
    return Ratio(math.exp(found.mean), _exp(found.low), _exp(found.high), found.p_value)


def _exp(value: float) -> float:
    """Two runs that scatter by orders of magnitude give an interval wider than numbers go."""
    return math.exp(max(-_WIDEST, min(_WIDEST, value)))


def ratio_of_pairs(ratios: Sequence[float]) -> Ratio | None:
    """Geometric mean of paired ratios, with Student's interval over the pairs."""
    mean = geometric_mean(ratios)
    if mean is None:
        return None
    interval = mean_interval([math.log(value) for value in ratios])
    if interval is None:
        return Ratio(mean)
    return Ratio(mean, _exp(interval.low), _exp(interval.high), interval.p_value)


def ratio_with_zeros(first: Sequence[float], second: Sequence[float]) -> Ratio | None:
    """Mean of second over mean of first where a value is zero: Welch's interval on the difference.

    A zero has no logarithm, yet it is a measurement: a run that moved nothing is the slowest of all.
    """
    if not first or not second or min(*first, *second) < 0 or not any(first):
        return None
    mean_first, mean_second = fmean(first), fmean(second)
    if len(first) < 2 or len(second) < 2:
        return Ratio(mean_second / mean_first)
    found = difference_interval(first, second)
    low, high = (max(0.0, 1 + end / mean_first) for end in (found.low, found.high))
    return Ratio(mean_second / mean_first, low, high, found.p_value)


def mean_of_ratios(ratios: Sequence[float]) -> Ratio | None:
    """Arithmetic mean of paired ratios with Student's interval, where a zero forbids the geometric one."""
    interval = mean_interval(ratios)
    if interval is None:
        return Ratio(ratios[0]) if ratios else None
    gains = mean_interval([ratio - 1 for ratio in ratios])
    p_value = None if gains is None else gains.p_value
    return Ratio(interval.mean, max(0.0, interval.low), interval.high, p_value)


def paired_ratio(first: Mapping[Any, float], second: Mapping[Any, float]) -> Ratio | None:
    """Geometric mean of second over first where both did the same work under the same keys."""
    if min(*first.values(), *second.values()) <= 0:
        return None
    return ratio_of_pairs([second[key] / first[key] for key in first])


def verdict(ratio: Ratio | None, better: Better) -> str:
    """What the interval allows to say about B."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return CANNOT_TELL
    if ratio.low - _ROUNDING <= 1 <= ratio.high + _ROUNDING:
        return ALIKE
    if better == "neither":
        return DIFFERS
    return BETTER if (ratio.value > 1) == (better == "higher") else WORSE


def win_rate(ratios: Sequence[float], better: Better) -> float | None:
    """Share of pairs in which B is strictly better; an equal pair is a win of neither."""
    if not ratios or better == "neither":
        return None
    values = np.asarray(ratios)
    return float(np.mean(values > 1 + _ROUNDING if better == "higher" else values < 1 - _ROUNDING))
