"""Shifts of a series: the drift or the stretch that stands out most, and how small a one would."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvspill.measure.statistics import cosines

Floats = NDArray[np.float64]

NOISE_WAVES = (8, 15)
"""The noise is the larger of what so many of the slowest cosines show: slow noise is no shift."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Shift:
    """A stretch of a series whose level differs from that of the rest, or a drift over all of it."""

    start: int
    stop: int
    difference: float
    """The stretch's mean less the mean of the rest; of a drift, how much the level moved in all."""
    z_score: float
    """That difference in units of its error, as the series shows it without the shift."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """What a series shows."""

    drift: Shift
    largest: Shift
    """The stretch that stands out most."""
    step_error: float
    """The error of a step in the middle."""


class _Shapes(NamedTuple):
    """The drift and every stretch of a series of some length."""

    places: tuple[tuple[int, int], ...]
    series: Floats
    """Each as a series with a mean of zero."""
    squares: Floats
    shares: Floats
    """Part of the series that each takes up; of the drift a half."""
    waves: Floats
    in_waves: Floats
    """Each as cosines."""
    middle: int
    """Which of them is the step in the middle."""


def find_shifts(values: Sequence[float], least: float = 0.0, least_of_mean: float = 0.0) -> Shifts:
    """The drift and the stretch that stand out most: a step, a hump, a collapse.

    least, least_of_mean: what differs by less, or moves the mean of all by less, has a score of zero.

    A stretch is at least a fifth of the series, at either end a tenth. The noise is taken from the slow
    cosines of what is left without the shift that is looked at, which a shift leaves as they are.
    """
    series = np.asarray(values, dtype=np.float64)
    mean = float(series.mean())
    shapes = _shapes(len(series))
    differences = shapes.series @ (series - mean) / shapes.squares
    left = shapes.waves @ (series - mean) - differences[:, None] * shapes.in_waves
    powers = [np.mean(left[:, :number] ** 2, axis=1) for number in NOISE_WAVES]
    # A series without any noise at all still has that of its numbers.
    noise = np.maximum(np.sqrt(np.maximum(*powers)), abs(mean) * _ROUNDING)
    errors = noise / np.sqrt(shapes.squares)
    sizes = np.abs(differences)
    counts = (errors > 0) & (sizes > least) & (sizes * shapes.shares > least_of_mean)
    z_scores = np.divide(sizes, errors, out=np.zeros(len(errors)), where=counts)

    def shift(at: int) -> Shift:
        return Shift(*shapes.places[at], float(differences[at]), float(z_scores[at]))

    largest = 1 + int(np.argmax(z_scores[1:]))
    return Shifts(shift(0), shift(largest), float(errors[shapes.middle]))


@lru_cache(maxsize=64)
def _shapes(count: int) -> _Shapes:
    inner, edge = max(2, count // 5), max(2, count // 10)
    places = [(0, count)]
    for start in range(count):
        for stop in range(start + edge, count + 1):
            at_edge = start == 0 or stop == count
            # Where the rest is one stretch, too, the shorter of the two is the one that stands out.
            if (stop - start <= count - count // 2) if at_edge else inner <= stop - start <= count - inner:
                places.append((start, stop))
    series = np.zeros((len(places), count))
    series[0] = (np.arange(count) - (count - 1) / 2) / count
    for row, (start, stop) in enumerate(places[1:], start=1):
        series[row, start:stop] = 1.0
    series[1:] -= series[1:].mean(axis=1, keepdims=True)
    waves = cosines(count, min(max(NOISE_WAVES), count // 2))
    return _Shapes(
        places=tuple(places),
        series=series,
        squares=np.einsum("ij,ij->i", series, series),
        shares=np.array([0.5, *((stop - start) / count for start, stop in places[1:])]),
        waves=waves,
        in_waves=series @ waves.T,
        middle=places.index((count // 2, count)),
    )
