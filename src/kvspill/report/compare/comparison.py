"""A against B: what differs in the set-up, and per metric the ratio with its interval and verdict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from kvspill.errors import UsageError
from kvspill.report.columns import (
    COLUMN,
    COLUMNS,
    DECODE_BYTES,
    PARAMETERS,
    STORAGE_THROUGHPUT,
    WALL_THROUGHPUT,
    Column,
)
from kvspill.report.compare.runs import INFERENCE, KV_CACHE_PY, KVSPILL, Run
from kvspill.report.compare.statistics import (
    Ratio,
    geometric_mean,
    ratio_of_pairs,
    ratio_of_samples,
    verdict,
    win_rate,
)

FEW_RUNS = 3
_SAME_LENGTH = 0.02
_SHOWN_VALUES = 4


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
    first: float
    second: float
    """Means over the side's matched runs."""
    ratio: Ratio | None
    """Second over first: a geometric mean where there are several runs or configurations."""
    verdict: str
    wins: float | None
    """Share of matched configurations in which the second side is better; None with one of them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is known about the second side against the first."""

    first_names: tuple[str, ...]
    second_names: tuple[str, ...]
    configurations: int
    matched_by: tuple[str, ...]
    differences: tuple[Difference, ...]
    lines: tuple[Line, ...]
    primary: tuple[str, ...]
    """The metrics that decide: as asked, or by the amount of CPU memory."""
    speed: float | None
    """Geometric mean of the deciding ratios, each turned so that above 1 is better."""
    doubts: tuple[str, ...]


def compare(first: Sequence[Run], second: Sequence[Run], decide_by: Sequence[str] = ()) -> Comparison:
    """The second side against the first, over the configurations that both have."""
    usable = [[run for run in side if run.incomplete is None] for side in (first, second)]
    for name, given, kept in zip("AB", (first, second), usable, strict=True):
        if not kept:
            named = "; ".join(f"{run.name} {run.incomplete}" for run in given)
            raise UsageError(f"side {name} has no complete run ({named or 'none given'}); run it again")
    matched_by, pairs = _pairs(usable[0], usable[1])
    found = (_line(column, pairs) for column in COLUMNS)
    lines = tuple(line for line in found if line is not None)
    known = {line.metric for line in lines}
    primary = _asked(decide_by, known) if decide_by else _primary([*usable[0], *usable[1]], known)
    return Comparison(
        first_names=tuple(run.name for run in usable[0]),
        second_names=tuple(run.name for run in usable[1]),
        configurations=len(pairs),
        matched_by=matched_by,
        differences=tuple(_differences(usable[0], usable[1])),
        lines=lines,
        primary=primary,
        speed=_speed([line for line in lines if line.metric in primary]),
        doubts=tuple(_doubts(first, second, usable[0], usable[1], pairs)),
    )


Pairs = list[tuple[list[Run], list[Run]]]


def _setting(run: Run, name: str) -> Any:
    if name == "name":
        return None if any(value is not None for value in run.config.values()) else run.group
    return run.config.get(name)


def _pairs(first: Sequence[Run], second: Sequence[Run]) -> tuple[tuple[str, ...], Pairs]:
    """Runs of equal configuration side by side.

    Only what varies within a side distinguishes configurations; what is constant on each side but not
    the same is what is being compared. The seed is no part of it: other seeds are repeats.
    """
    names = [parameter.name for parameter in PARAMETERS if parameter.name != "seed"] + ["name"]
    varying = tuple(
        name
        for name in names
        if any(len({str(_setting(run, name)) for run in side}) > 1 for side in (first, second))
    )
    sides: list[dict[tuple[str, ...], list[Run]]] = [{}, {}]
    for side, runs in zip(sides, (first, second), strict=True):
        for run in runs:
            side.setdefault(tuple(str(_setting(run, name)) for name in varying), []).append(run)
    keys = sorted(sides[0].keys() & sides[1].keys())
    if not keys:
        raise UsageError(
            f"no configuration appears on both sides (they vary in {', '.join(varying)}); "
            "give runs with the same settings on either side of `--`"
        )
    return varying, [(sides[0][key], sides[1][key]) for key in keys]


def _line(column: Column, pairs: Pairs) -> Line | None:
    name = column.name
    both = [
        (
            [run.values[name] for run in ours if name in run.values],
            [run.values[name] for run in theirs if name in run.values],
        )
        for ours, theirs in pairs
    ]
    both = [(ours, theirs) for ours, theirs in both if ours and theirs]
    if not both:
        return None
    ratios = [ratio.value for ours, theirs in both if (ratio := ratio_of_samples(ours, theirs))]
    whole = ratio_of_samples(*both[0]) if len(both) == 1 else ratio_of_pairs(ratios)
    values = {value for ours, theirs in both for value in (*ours, *theirs)}
    if values == {0.0}:
        return None
    return Line(
        metric=name,
        title=column.title,
        unit=column.unit,
        better=column.better,
        configurations=len(both),
        first=fmean(value for ours, _ in both for value in ours),
        second=fmean(value for _, theirs in both for value in theirs),
        ratio=whole,
        verdict=verdict(whole, column.better),
        wins=win_rate(ratios, column.better) if len(both) > 1 else None,
    )


def _differences(first: Sequence[Run], second: Sequence[Run]) -> Iterable[Difference]:
    sides = [[{**run.config, **run.facts} for run in side] for side in (first, second)]
    names = dict.fromkeys(name for side in sides for facts in side for name in facts)
    full = any(run.kind == KVSPILL for run in (*first, *second))
    for name in names:
        if full and f"config.{name}" in names:
            continue
        ours, theirs = (_values(side, name) for side in sides)
        if ours != theirs:
            yield Difference(name.removeprefix("config."), _shown(ours), _shown(theirs))


def _values(side: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return sorted({_text(facts[name]) if name in facts else "not recorded" for facts in side})


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "not set" if value is None else str(value)


def _shown(values: Sequence[str]) -> str:
    more = f", … ({len(values)} values)" if len(values) > _SHOWN_VALUES else ""
    return ", ".join(values[:_SHOWN_VALUES]) + more


def _primary(runs: Sequence[Run], known: set[str]) -> tuple[str, ...]:
    """Without CPU memory bytes and the wall clock tell drives apart; with some, storage throughput does."""
    memory = {run.config.get("cpu_mem_gb") for run in runs}
    if all(run.kind == INFERENCE for run in runs):
        wanted: tuple[str, ...] = (WALL_THROUGHPUT,)
    elif memory == {0}:
        wanted = (DECODE_BYTES, WALL_THROUGHPUT)
    elif None in memory or 0 in memory:
        wanted = (WALL_THROUGHPUT, STORAGE_THROUGHPUT)
    else:
        wanted = (STORAGE_THROUGHPUT,)
    return tuple(name for name in wanted if name in known)


def _doubts(
    all_first: Sequence[Run],
    all_second: Sequence[Run],
    first: Sequence[Run],
    second: Sequence[Run],
    pairs: Pairs,
) -> Iterable[str]:
    set_aside = [run for run in (*all_first, *all_second) if run.incomplete is not None]
    if set_aside:
        yield (
            "Set aside, in no figure: " + "; ".join(f"{run.name} {run.incomplete}" for run in set_aside) + "."
        )
    kinds = [{run.kind for run in side} for side in (first, second)]
    if (INFERENCE in kinds[0]) != (INFERENCE in kinds[1]):
        yield "One side is real inference, the other storage I/O alone: their tokens/s are not comparable."
    simulated = [{run.simulated for run in side} for side in (first, second)]
    if simulated[0] != simulated[1]:
        yield "One side is simulated, the other measured: the ratio judges the model, not the device."
    elif simulated == [{True}, {True}]:
        yield "Both sides are simulated: no byte moved."
    fewest = min(min(len(ours), len(theirs)) for ours, theirs in pairs)
    if fewest < FEW_RUNS:
        count = "one run" if fewest == 1 else f"{fewest} runs"
        yield f"Only {count} of a configuration on a side: give {FEW_RUNS} or more to know the spread."
    if any(run.kind == KV_CACHE_PY for run in (*first, *second)):
        yield "Results of kv-cache.py hold no configuration: only what file names say is known of the set-up."
    yield from _work_doubts(first, second, pairs)
    for name, side in (("A", first), ("B", second)):
        codes = dict.fromkeys(code for run in side for code in run.cautions if code != "few_trials")
        if codes:
            yield f"Warnings in the results of {name}: {', '.join(codes)}."


def _work_doubts(first: Sequence[Run], second: Sequence[Run], pairs: Pairs) -> Iterable[str]:
    lengths = [[run.seconds for run in side if run.seconds] for side in (first, second)]
    if all(lengths) and abs(fmean(lengths[1]) / fmean(lengths[0]) - 1) > _SAME_LENGTH:
        yield (
            f"The sides ran for different times ({fmean(lengths[0]):.1f} s and {fmean(lengths[1]):.1f} s): "
            "volumes such as decode bytes grow with time; compare rates."
        )
    for ours, theirs in pairs:
        digests = {run.digest for run in (*ours, *theirs) if run.digest is not None}
        if len(digests) > 1:
            yield "The digests differ: the sides did not plan the same operations."
            return


def _asked(metrics: Sequence[str], known: set[str]) -> tuple[str, ...]:
    for name in metrics:
        if name not in COLUMN or COLUMN[name].better == "neither":
            judged = ", ".join(column.name for column in COLUMNS if column.better != "neither")
            raise UsageError(f"--metric {name}: not a metric that can be judged; choose from {judged}")
        if name not in known:
            raise UsageError(f"--metric {name}: not in the results of both sides; choose another")
    return tuple(dict.fromkeys(metrics))


def speed_of(line: Line, ratio: float) -> float:
    """A ratio with the sense of speed: below 1 is slower, whatever the metric."""
    return ratio if line.better == "higher" else 1 / ratio


def _speed(lines: Sequence[Line]) -> float | None:
    return geometric_mean([speed_of(line, line.ratio.value) for line in lines if line.ratio is not None])
