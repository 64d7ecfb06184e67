"""What the search for a telling metric works with: pairs of runs and the spread of their ratios."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from kvspill.measure.statistics import coefficient_of_variation
from kvspill.report.columns import (
    COLUMN,
    COLUMNS,
    DECODE_BYTES,
    STORAGE_THROUGHPUT,
    WALL_THROUGHPUT,
)
from kvspill.report.compare.ratios import Ratio, ratio_of_pairs, win_rate
from kvspill.report.compare.run import Run

CANDIDATES = (DECODE_BYTES, WALL_THROUGHPUT, STORAGE_THROUGHPUT)
"""Figures that can serve as the score of a submission."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration with both systems' figures."""

    config: Mapping[str, Any]
    first: Mapping[str, float]
    second: Mapping[str, float]
    first_runs: tuple[Run, ...]
    second_runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """One metric over some pairs: first over second, averaged in each of the usual ways."""

    count: int
    mean: float | None
    median: float | None
    """None, like the mean, where the second system has nothing but zeros."""
    geometric: Ratio | None
    """None where a system has a zero: it has no logarithm."""
    of_means: float | None
    """Mean of the first system's values over the mean of the second's."""
    wins: float | None
    """Share of pairs in which the first system is better."""
    losses: float | None
    """Share in which the second is; what is missing to 1 are ties."""
    first_zeros: int
    second_zeros: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The pairs that share a setting."""

    label: str
    count: int
    metrics: Mapping[str, Spread]


@dataclass(frozen=True, slots=True)
class Variation:
    """Spread of a metric within one number of users, for either system."""

    users: float
    count: int
    first: float | None
    second: float | None


def gb(value: float) -> str:
    return f"{value:g} GB"


def cpu_and_allocs(config: Mapping[str, Any]) -> str:
    return f"{gb(config['cpu_mem_gb'])}, allocs {config['max_concurrent_allocs']:g}"


def slices(pairs: Sequence[Pair], label: Callable[[Mapping[str, Any]], str]) -> tuple[Slice, ...]:
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        parts.setdefault(label(pair.config), []).append(pair)
    return tuple(slice_of(name, parts[name]) for name in sorted(parts, key=_natural))


def _natural(label: str) -> tuple[Any, ...]:
    """Numbers in a label by size, words by letter."""
    words = label.replace(",", " ").split()
    return tuple(
        (0, float(word), "") if word.replace(".", "", 1).isdigit() else (1, 0.0, word) for word in words
    )


def slice_of(label: str, pairs: Sequence[Pair]) -> Slice:
    spreads = {column.key: _spread(column.key, pairs) for column in COLUMNS}
    return Slice(label, len(pairs), {name: spread for name, spread in spreads.items() if spread is not None})


def _spread(name: str, pairs: Sequence[Pair]) -> Spread | None:
    both = [
        (pair.first[name], pair.second[name]) for pair in pairs if name in pair.first and name in pair.second
    ]
    better = COLUMN[name].better
    # Where more is better, nothing at all is the worst that can be; a latency of zero is no measurement.
    lowest = 0.0 if better == "higher" else math.nextafter(0.0, 1.0)
    known = [(ours, theirs) for ours, theirs in both if ours >= lowest and theirs >= lowest]
    if not any(ours or theirs for ours, theirs in known):
        return None
    ratios = [_ratio(ours, theirs) for ours, theirs in known]
    finite = [ours / theirs for ours, theirs in known if theirs]
    wins = win_rate(ratios, better)
    inverse = [math.inf if not ratio else 1 / ratio for ratio in ratios]
    whole = sum(theirs for _, theirs in known)
    return Spread(
        count=len(known),
        mean=fmean(finite) if finite else None,
        median=median(finite) if finite else None,
        geometric=ratio_of_pairs(finite) if len(finite) == len(known) else None,
        of_means=sum(ours for ours, _ in known) / whole if whole else None,
        wins=wins,
        losses=win_rate(inverse, better),
        first_zeros=sum(1 for ours, _ in known if not ours),
        second_zeros=sum(1 for _, theirs in known if not theirs),
    )


def _ratio(ours: float, theirs: float) -> float:
    if theirs:
        return ours / theirs
    return math.inf if ours else 1.0


def variation(pairs: Sequence[Pair], name: str = STORAGE_THROUGHPUT) -> tuple[Variation, ...]:
    found = []
    for users in sorted({pair.config["num_users"] for pair in pairs}):
        here = [pair for pair in pairs if pair.config["num_users"] == users]
        first = [pair.first[name] for pair in here if name in pair.first]
        second = [pair.second[name] for pair in here if name in pair.second]
        found.append(
            Variation(users, len(here), coefficient_of_variation(first), coefficient_of_variation(second))
        )
    return tuple(found)
