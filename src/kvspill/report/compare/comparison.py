"""A against B: what differs in the set-up, and per metric the ratio with its interval and verdict."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from kvspill.errors import UsageError
from kvspill.measure.statistics import holm
from kvspill.report.columns import COLUMN, COLUMNS, speaks_of_storage
from kvspill.report.compare.deciding import PAIRED_SEEDS, deciding, power
from kvspill.report.compare.doubts import doubts
from kvspill.report.compare.matching import Pairs, match_sides
from kvspill.report.compare.ratios import (
    BETTER,
    CANNOT_TELL,
    INDICATIVE,
    NO_RANK,
    Ratio,
    mean_of_ratios,
    paired_ratio,
    ratio_of_pairs,
    ratio_of_samples,
    ratio_with_zeros,
    verdict,
    win_rate,
)
from kvspill.report.compare.run import KVSPILL, Run, is_modelled, seed_of, unranked
from kvspill.report.settings import canonical
from kvspill.result.metrics.metric import Figure

_SHOWN_VALUES = 4
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that is not the same on both sides."""

    name: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Line:
    """One metric on both sides."""

    metric: str
    title: str
    unit: str
    better: str
    configurations: int
    first: float | None
    second: float | None
    """Means over the side's matched runs; None where its storage did nothing."""
    ratio: Ratio | None
    """Second over first: a geometric mean where there are several runs or configurations."""
    verdict: str
    wins: float | None
    """Share of matched configurations in which the second side is better; None with one of them."""
    zeros: bool = False
    """Whether a run has nothing at all where more is better."""
    modelled: str = ""
    """The sides on which a device model gave the figure: A, B or AB."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is known about the second side against the first."""

    first_names: tuple[str, ...]
    second_names: tuple[str, ...]
    """The runs behind the figures: complete, and of a configuration that both sides have."""
    unmatched: tuple[str, ...]
    """Runs of a configuration that the other side doesn't have: in no figure."""
    configurations: int
    matched_by: tuple[str, ...]
    by_seed: bool
    """Whether runs were paired by their seed, which both sides ran once each."""
    differences: tuple[Difference, ...]
    lines: tuple[Line, ...]
    primary: tuple[str, ...]
    """The metrics that decide: as asked, or by the amount of CPU memory."""
    doubts: tuple[str, ...]


def compare(first: Sequence[Run], second: Sequence[Run], decide_by: Sequence[str] = ()) -> Comparison:
    """The second side against the first, over the configurations that both have."""
    usable = [[run for run in side if run.incomplete is None] for side in (first, second)]
    for name, given, kept in zip("AB", (first, second), usable, strict=True):
        if not kept:
            named = "; ".join(f"{run.name} {run.incomplete}" for run in given)
            raise UsageError(f"side {name} has no complete run ({named or 'none given'}); run it again")
    matching = match_sides(usable[0], usable[1])
    ours, theirs = matching.side(0), matching.side(1)
    found = (_line(column, matching.pairs) for column in COLUMNS)
    lines = tuple(line for line in found if line is not None)
    if unranked((*ours, *theirs)):
        lines = tuple(replace(line, verdict=NO_RANK) for line in lines)
    known = {line.metric for line in lines if None not in (line.first, line.second)}
    primary = _asked(decide_by, known) if decide_by else deciding([*ours, *theirs], known)
    lines = corrected(lines, primary)
    set_aside = [run for run in (*first, *second) if run.incomplete is not None]
    zeros = [line.title for line in lines if line.zeros]
    by_seed = len(matching.pairs) == 1 and same_seeds(*matching.pairs[0])
    return Comparison(
        first_names=tuple(run.name for run in ours),
        second_names=tuple(run.name for run in theirs),
        unmatched=tuple(run.name for side in matching.unmatched for run in side),
        configurations=len(matching.pairs),
        matched_by=matching.by,
        by_seed=by_seed,
        differences=tuple(_differences(ours, theirs)),
        lines=lines,
        primary=primary,
        doubts=(*doubts(matching, set_aside, zeros), *power(matching.pairs, primary, by_seed)),
    )


def corrected(lines: Sequence[Line], primary: Sequence[str]) -> tuple[Line, ...]:
    """Verdicts that hold together: the deciding lines are one family, all others another (Holm)."""
    kept = dict(enumerate(lines))
    for decides in (True, False):
        family = [
            place
            for place, line in enumerate(lines)
            if (line.metric in primary) == decides and line.verdict in INDICATIVE
        ]
        others = sum((line.metric in primary) == decides and line.ratio is not None for line in lines)
        p_values = [_p_value(lines[place]) for place in family]
        # Those that show nothing are of the family too.
        holds = holm([*p_values, *[1.0] * max(0, others - len(family))])
        for place, holding in zip(family, holds, strict=False):
            if not holding:
                kept[place] = replace(lines[place], verdict=INDICATIVE[lines[place].verdict])
    return tuple(kept.values())


def _p_value(line: Line) -> float:
    """Where A has nothing at all and B has something, chance is no explanation."""
    return 0.0 if line.ratio is None or line.ratio.p_value is None else line.ratio.p_value


Samples = tuple[list[float], list[float]]


def _line(column: Figure, pairs: Pairs) -> Line | None:
    name = column.key
    both: list[Samples] = []
    kept: Pairs = []
    for pair in pairs:
        sides = [[run for run in side if name in run.values] for side in pair]
        if all(sides):
            kept.append((sides[0], sides[1]))
            both.append(([run.values[name] for run in sides[0]], [run.values[name] for run in sides[1]]))
    if not both:
        return _one_sided(column, pairs)
    if not any(value for ours, theirs in both for value in (*ours, *theirs)):
        return None
    ratio = _one_ratio(column, kept[0], both[0]) if len(both) == 1 else _mean_ratio(column, both)
    return Line(
        metric=name,
        title=column.shown_title,
        unit=column.unit,
        better=column.better,
        configurations=len(both),
        first=fmean(value for ours, _ in both for value in ours),
        second=fmean(value for _, theirs in both for value in theirs),
        ratio=ratio,
        verdict=_judged(column, ratio, both),
        wins=_wins(column, both) if len(both) > 1 else None,
        zeros=column.better == "higher" and any(0.0 in side for pair in both for side in pair),
        modelled="".join(
            side
            for at, side in enumerate("AB")
            if is_modelled((run for pair in kept for run in pair[at]), name)
        ),
    )


def _one_sided(column: Figure, pairs: Pairs) -> Line | None:
    """A figure of storage that one side did not use: shown, so that nobody looks for it, and not compared."""
    sides = [[run for pair in pairs for run in pair[at]] for at in (0, 1)]
    known = [[run.values[column.key] for run in side if column.key in run.values] for side in sides]
    idle = [all(run.without_storage_io for run in side) and speaks_of_storage(column.title) for side in sides]
    if idle.count(True) != 1 or not any(known[idle.index(False)]):
        return None
    means = [fmean(values) if values else None for values in known]
    return Line(
        metric=column.key,
        title=column.shown_title,
        unit=column.unit,
        better=column.better,
        configurations=len(pairs),
        first=means[0],
        second=means[1],
        ratio=None,
        verdict=CANNOT_TELL,
        wins=None,
        modelled="".join(
            side for at, side in enumerate("AB") if is_modelled(sides[at], column.key) and known[at]
        ),
    )


def _wins(column: Figure, both: Sequence[Samples]) -> float | None:
    ratios = [found for ours, theirs in both if (found := _plain_ratio(column, ours, theirs)) is not None]
    return win_rate(ratios, column.better)


def _judged(column: Figure, ratio: Ratio | None, both: Sequence[Samples]) -> str:
    """Where A has nothing at all there is no ratio, but who is ahead can be told."""
    ours, theirs = both[0]
    nothing = len(both) == 1 and len(ours) > 1 and len(theirs) > 1 and not any(ours) and min(theirs) > 0
    return BETTER if nothing and column.better == "higher" else verdict(ratio, column.better)


def _one_ratio(column: Figure, runs: tuple[list[Run], list[Run]], values: Samples) -> Ratio | None:
    """One configuration: by seed where both sides ran the same, else by the two samples."""
    if same_seeds(*runs):
        by_seed = [{seed_of(run): run.values[column.key] for run in side} for side in runs]
        found = paired_ratio(by_seed[0], by_seed[1])
        if found is not None:
            return found
    ratio = ratio_of_samples(*values)
    return ratio_with_zeros(*values) if ratio is None and column.better == "higher" else ratio


def same_seeds(first: Sequence[Run], second: Sequence[Run]) -> bool:
    """Whether each side ran each of the same seeds once.

    The same users ask then. How much they ask in a given time may depend on the storage, where they wait for
    their answers: that is an effect of the sides, and no reason to give the pairs up.
    """
    seeds = [[seed_of(run) for run in side] for side in (first, second)]
    once = all(None not in side and len(set(side)) == len(side) for side in seeds)
    return once and set(seeds[0]) == set(seeds[1]) and len(seeds[0]) >= PAIRED_SEEDS


def _plain_ratio(column: Figure, ours: list[float], theirs: list[float]) -> float | None:
    """One configuration's ratio for the mean and the win rate; infinite where only A has nothing."""
    ratio = ratio_of_samples(ours, theirs)
    if ratio is not None:
        return ratio.value
    if column.better != "higher" or min(*ours, *theirs) < 0:
        return None
    if not any(ours):
        return math.inf if any(theirs) else 1.0
    return fmean(theirs) / fmean(ours)


def _mean_ratio(column: Figure, both: Sequence[Samples]) -> Ratio | None:
    """Over configurations: the geometric mean, or the arithmetic one where B has a zero in some."""
    found = [_plain_ratio(column, ours, theirs) for ours, theirs in both]
    ratios = [ratio for ratio in found if ratio is not None and math.isfinite(ratio)]
    return mean_of_ratios(ratios) if 0.0 in ratios else ratio_of_pairs(ratios)


def _differences(first: Sequence[Run], second: Sequence[Run]) -> Iterable[Difference]:
    sides = [
        [{**{f"config.{name}": value for name, value in run.config.items()}, **run.facts} for run in side]
        for side in (first, second)
    ]
    recorded = [{name for facts in side for name in facts} for side in sides]
    # A table says less than a result: what it doesn't record is no difference of the set-up.
    whole = all(run.kind == KVSPILL for run in (*first, *second))
    for name in dict.fromkeys(name for side in sides for facts in side for name in facts):
        if not whole and not all(name in names for names in recorded):
            continue
        ours, theirs = (_values(side, name) for side in sides)
        if ours != theirs:
            yield Difference(name.removeprefix("config."), _shown(ours), _shown(theirs))
    for index, missing in enumerate((recorded[1] - recorded[0], recorded[0] - recorded[1])):
        if missing and not whole:
            said = [f"{len(missing)} recorded"] * 2
            said[index] = "not recorded"
            yield Difference("further settings", said[0], said[1])


def _values(side: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return sorted({_words(facts[name]) if name in facts else "not recorded" for facts in side})


def _words(value: Any) -> str:
    """Names in a list as a reader would write them."""
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return canonical(value)


def _shown(values: Sequence[str]) -> str:
    more = f", … ({len(values)} values)" if len(values) > _SHOWN_VALUES else ""
    return ", ".join(_cut(value) for value in values[:_SHOWN_VALUES]) + more


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _asked(metrics: Sequence[str], known: set[str]) -> tuple[str, ...]:
    for name in metrics:
        if name not in COLUMN or COLUMN[name].better == "neither":
            judged = ", ".join(column.key for column in COLUMNS if column.better != "neither")
            raise UsageError(f"--metric {name}: not a metric that can be judged; choose from {judged}")
        if name not in known:
            raise UsageError(f"--metric {name}: not in the results of both sides; choose another")
    return tuple(dict.fromkeys(metrics))


def speed_of(line: Line, ratio: float) -> float:
    """A ratio with the sense of speed: below 1 is slower, whatever the metric."""
    return ratio if line.better == "higher" else (1 / ratio if ratio else math.inf)
