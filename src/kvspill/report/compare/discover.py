"""Which metric tells two systems apart: ratios and win rates over the configurations both have run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from kvspill.errors import UsageError
from kvspill.report.columns import COLUMN, CONFIGURATION, SHAPING, finite
from kvspill.report.compare.advice import Advice, advise, findings
from kvspill.report.compare.doubts import different_lengths, kinds, named, no_ranks
from kvspill.report.compare.matching import recorded, settings_that, values_of
from kvspill.report.compare.run import NUMBERS, Run
from kvspill.report.compare.spreads import (
    CANDIDATES,
    Pair,
    Slice,
    Variation,
    cpu_and_allocs,
    gb,
    slice_of,
    slices,
    variation,
)
from kvspill.report.settings import canonical
from kvspill.texts import counted

_COIN = 6
"""A coin names the same system in all of fewer configurations more often than once in twenty tries."""
Key = tuple[str, ...]
Sides = tuple[Sequence[Run], Sequence[Run]]
Names = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Discovery:
    """Everything that the analysis found."""

    first_name: str
    second_name: str
    first_runs: int
    second_runs: int
    pairs: int
    kinds: tuple[str, ...]
    """What must be known first: that runs are simulated, or of different kinds."""
    overall: Slice
    by_cpu_mem: tuple[Slice, ...]
    by_model: tuple[Slice, ...]
    by_users: tuple[Slice, ...]
    by_allocs: tuple[Slice, ...]
    variation: tuple[Variation, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


def discover(first_name: str, first: Sequence[Run], second_name: str, second: Sequence[Run]) -> Discovery:
    """Compare two systems over every configuration that both have run to the end."""
    names = (first_name, second_name)
    pairs = match(first, second)
    if not pairs:
        raise UsageError(_no_match(names, (first, second)))
    overall = slice_of("all", pairs)
    by_cpu_mem = slices(pairs, lambda config: gb(config["cpu_mem_gb"]))
    by_allocs = slices(pairs, cpu_and_allocs)
    advice = [item for part in by_cpu_mem for item in advise(part, names)]
    return Discovery(
        first_name=first_name,
        second_name=second_name,
        first_runs=len(first),
        second_runs=len(second),
        pairs=len(pairs),
        kinds=tuple(kinds(*_matched_runs(pairs))),
        overall=overall,
        by_cpu_mem=by_cpu_mem,
        by_model=slices(pairs, lambda config: str(config["model"])),
        by_users=slices(pairs, lambda config: f"{config['num_users']:g}"),
        by_allocs=by_allocs,
        variation=variation(pairs),
        advice=tuple(advice),
        notes=(
            *no_ranks((*first, *second)),
            *findings(advice, overall, by_cpu_mem, by_allocs),
            *_doubts(names, pairs, overall),
            *_left_out((first, second), pairs),
            *_GENERAL,
        ),
    )


def _matched_by(sides: Sides) -> tuple[str, ...]:
    """The five settings of every summary, and those that shape a run where both sides record them."""
    known = [name for name in SHAPING if all(any(name in run.config for run in side) for side in sides)]
    return (*CONFIGURATION, *known)


def _key(run: Run, names: Sequence[str]) -> Key | None:
    numbers = all(finite(run.config.get(name)) is not None for name in NUMBERS)
    if not numbers or any(run.config.get(name) is None for name in CONFIGURATION):
        return None
    return tuple(canonical(run.config.get(name)) for name in names)


def match(first: Sequence[Run], second: Sequence[Run]) -> list[Pair]:
    """Configurations of both sides, in order; several runs of one configuration count by their median."""
    names = _matched_by((first, second))
    ours, theirs = _by_configuration(first, names), _by_configuration(second, names)
    return [
        Pair(
            {name: ours[key][0].config.get(name) for name in names},
            _medians(ours[key]),
            _medians(theirs[key]),
            tuple(ours[key]),
            tuple(theirs[key]),
        )
        for key in sorted(ours.keys() & theirs.keys())
    ]


def _by_configuration(runs: Sequence[Run], names: Sequence[str]) -> dict[Key, list[Run]]:
    found: dict[Key, list[Run]] = {}
    for run in runs:
        key = _key(run, names)
        if key is not None and run.incomplete is None and not _crowded(run):
            found.setdefault(key, []).append(run)
    return found


def _crowded(run: Run) -> bool:
    """A faulty run is here only where the user asked for it."""
    return run.no_rank is not None and run.faults is None


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    names = set.intersection(*(set(run.values) for run in runs))
    return {name: median(run.values[name] for run in runs) for name in names}


def _no_match(names: Names, sides: Sides) -> str:
    apart = []
    for name in _matched_by(sides):
        ours, theirs = ({canonical(run.config.get(name)) for run in side} for side in sides)
        if not ours & theirs:
            apart.append(f"{name} is {', '.join(sorted(ours)[:3])} and {', '.join(sorted(theirs)[:3])}")
    why = f" ({'; '.join(apart)})" if apart else ""
    return (
        f"no configuration appears in both {names[0]} and {names[1]}{why}; the analysis needs runs with the "
        "same model, CPU memory, allocation limit, generation mode, users and length on either side"
    )


def _matched_runs(pairs: Sequence[Pair]) -> tuple[list[Run], list[Run]]:
    return (
        [run for pair in pairs for run in pair.first_runs],
        [run for pair in pairs for run in pair.second_runs],
    )


def _doubts(names: Names, pairs: Sequence[Pair], overall: Slice) -> Iterator[str]:
    first, second = _matched_runs(pairs)
    length = different_lengths(first, second)
    if length is not None:
        yield f"The systems ran for {length}"
    unlike = _unlike(first, second)
    if unlike:
        yield f"The set-ups also differ in {', '.join(unlike)}."
    if len(pairs) < _COIN:
        yield f"{counted(len(pairs), 'configuration')}: chance alone can give any of these win rates."
    for name in CANDIDATES:
        yield from _gaps(name, names, pairs, overall)
    yield from _repeats(names, pairs)


def _unlike(first: Sequence[Run], second: Sequence[Run]) -> list[str]:
    """Settings outside of the match whose values are not the same on both sides."""
    return settings_that(
        (*first, *second),
        lambda name: (
            recorded(first, name)
            and recorded(second, name)
            and values_of(first, name) != values_of(second, name)
        ),
    )


def _gaps(name: str, names: Names, pairs: Sequence[Pair], overall: Slice) -> Iterator[str]:
    """Where a candidate was not measured, or measured as nothing."""
    title = COLUMN[name].shown_title
    for side, system in enumerate(names):
        values = [(pair.first, pair.second)[side] for pair in pairs]
        missing = sum(1 for figures in values if name not in figures)
        if missing == len(pairs):
            yield f"{title}: not in the runs of {system}, so it is not judged."
        elif missing:
            yield f"{title}: missing in {missing} of {len(pairs)} configurations of {system}, left out there."
    spread = overall.metrics.get(name)
    if spread is not None:
        for system, zeros in zip(names, (spread.first_zeros, spread.second_zeros), strict=True):
            if zeros:
                yield (
                    f"{title}: zero in {zeros} of {spread.count} configurations of {system}. A zero is a "
                    "loss; it has no logarithm, so there is no geometric mean."
                )


def _repeats(names: Names, pairs: Sequence[Pair]) -> Iterator[str]:
    for side, system in enumerate(names):
        several = [runs for pair in pairs if len(runs := (pair.first_runs, pair.second_runs)[side]) > 1]
        if not several:
            continue
        clashing = sum(1 for runs in several if len({run.name for run in runs}) < len(runs))
        same = f", in {clashing} of them under the same file name" if clashing else ""
        yield (
            f"Configurations with several runs of {system}: {len(several)}{same}. Each counts by its median."
        )


_GENERAL = (
    "Mean, median, geometric mean and ratio of means answer different questions and differ by tens of "
    "percent where ratios scatter; a published figure that names none of them may not be found here.",
    "The variation is between configurations with equal users (models, memory, limits), not between "
    "repeats of one: repeats are needed to know the noise.",
)


def _left_out(sides: Sides, pairs: Sequence[Pair]) -> Iterator[str]:
    set_aside = [run for side in sides for run in side if run.incomplete is not None]
    if set_aside:
        yield f"Set aside, in no figure: {named(f'{run.name} {run.incomplete}' for run in set_aside)}."
    crowded = [run for side in sides for run in side if _crowded(run)]
    if crowded:
        yield f"Crowded, in no figure: {named(run.name for run in crowded)}."
    names = _matched_by(sides)
    unnamed = sum(1 for side in sides for run in side if _key(run, names) is None)
    if unnamed:
        yield f"Left out because the configuration is not known: {counted(unnamed, 'run')}."
    unmatched = sum(len(_by_configuration(side, names)) for side in sides) - 2 * len(pairs)
    if unmatched:
        yield f"Left out because only one side ran it: {counted(unmatched, 'configuration')}."
