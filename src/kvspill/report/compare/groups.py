"""Several groups of trials beside each other: mean and spread of each, and how far above the slowest."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from kvspill.report.columns import COLUMN, COLUMNS, STORAGE_THROUGHPUT, WALL_THROUGHPUT
from kvspill.report.compare.doubts import idle_storage, memory_for_drive, modelled_on, named, no_ranks
from kvspill.report.compare.matching import by_settings, settings_that, values_of
from kvspill.report.compare.run import INFERENCE, Run, unranked
from kvspill.result.warnings.certainty import FEW_TRIALS
from kvspill.result.warnings.devices import SIMULATED
from kvspill.result.warnings.known import titles

_NAMED_SETTINGS = 6
METRIC_OF_KIND = {INFERENCE: WALL_THROUGHPUT}


@dataclass(frozen=True, slots=True)
class Average:
    """Mean and standard deviation of all trials given (population: these trials and no others)."""

    count: int
    mean: float
    deviation: float | None
    """None for a single trial: nothing is known of its spread."""

    @property
    def cv(self) -> float | None:
        return None if self.deviation is None or not self.mean else self.deviation / self.mean


@dataclass(frozen=True, slots=True)
class Group:
    """The trials of one configuration."""

    name: str
    kind: str
    metric: str
    """What groups of this kind are ranked by."""
    everything: Average
    complete: Average | None
    """The same without trials that did not complete; None where none did."""
    speedup: float | None
    """Over the slowest group of the same kind, all trials; None for a group without a rank."""
    metrics: dict[str, Average]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """A group without a figure to be ranked by, because its storage did nothing."""

    name: str
    kind: str
    metric: str
    trials: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """All groups, fastest first within their kind, those without a rank last, and the trials behind them."""

    groups: tuple[Group, ...]
    runs: tuple[Run, ...]
    doubts: tuple[str, ...]
    idle: tuple[Idle, ...] = ()


def rank(runs: Sequence[Run]) -> Ranking:
    """Group trials by name and put the groups in order of their metric."""
    named: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        named.setdefault((_family(run), run.group), []).append(run)
    # Equal names from different directories may stand for different configurations.
    named = {
        (family, f"{group} ({words})" if words else group): part
        for (family, group), trials in named.items()
        for words, part in by_settings(trials).items()
    }
    found, left_out, idle = [], [], []
    for family in dict.fromkeys(family for family, _ in named):
        metric = METRIC_OF_KIND.get(family, STORAGE_THROUGHPUT)
        members = {group: trials for (kind, group), trials in named.items() if kind == family}
        if not any(_average(trials, metric) for trials in members.values()):
            metric = WALL_THROUGHPUT
        none = {name: trials for name, trials in members.items() if not _average(trials, metric)}
        unused = [name for name, trials in none.items() if all(run.without_storage_io for run in trials)]
        idle += [Idle(name, family, metric, len(none[name])) for name in unused]
        left_out += [_left_out(metric, [name for name in none if name not in unused])]
        found += _family_groups(family, metric, members)
    ordered = tuple(sorted(runs, key=lambda run: (run.kind == INFERENCE, run.group, run.name)))
    doubts = [*filter(None, left_out), *_doubts(runs, len({_family(run) for run in runs}) > 1)]
    return Ranking(tuple(found), ordered, tuple(doubts), tuple(idle))


def _left_out(metric: str, names: Sequence[str]) -> str:
    """Groups that have nothing to be ranked by; empty where there are none."""
    title = COLUMN[metric].shown_title
    return f"{title} is none or not measured, so without rank: {', '.join(names)}." if names else ""


def _family(run: Run) -> str:
    return INFERENCE if run.kind == INFERENCE else "storage"


def _average(runs: Sequence[Run], metric: str) -> Average | None:
    values = [run.values[metric] for run in runs if metric in run.values]
    if not values:
        return None
    return Average(len(values), fmean(values), pstdev(values) if len(values) > 1 else None)


def _family_groups(family: str, metric: str, members: dict[str, list[Run]]) -> list[Group]:
    averages = {name: average for name, trials in members.items() if (average := _average(trials, metric))}
    ranked = {name for name in averages if not unranked(members[name])}
    slowest = min((averages[name].mean for name in ranked if averages[name].mean > 0), default=0.0)
    groups = []
    for name, average in sorted(averages.items(), key=lambda item: (item[0] not in ranked, -item[1].mean)):
        trials = members[name]
        complete = [run for run in trials if run.incomplete is None]
        every = {column.key: found for column in COLUMNS if (found := _average(trials, column.key))}
        groups.append(
            Group(
                name=name,
                kind=family,
                metric=metric,
                everything=average,
                complete=_average(complete, metric),
                speedup=None if name not in ranked else average.mean / slowest if slowest else 1.0,
                metrics=every,
                runs=tuple(trials),
            )
        )
    return groups


def _doubts(runs: Sequence[Run], mixed: bool) -> list[str]:
    doubts = [*no_ranks(runs), *idle_storage(runs), *memory_for_drive(runs)]
    set_aside = [run for run in runs if run.incomplete is not None]
    if set_aside:
        named = "; ".join(f"{run.name} {run.incomplete}" for run in set_aside)
        doubts.append(f"Did not complete: {named}. The column of complete trials leaves them out.")
    if mixed:
        title = COLUMN[STORAGE_THROUGHPUT].shown_title
        doubts.append(
            f"Inference engines are ranked by their wall clock and the others by {title}: one measures real "
            "inference, the other storage I/O alone, and the two are not comparable."
        )
    if any(run.simulated for run in runs):
        doubts.append(
            "Some runs are simulated: " + ", ".join(run.name for run in runs if run.simulated) + "."
        )
    doubts += modelled_on([run for run in runs if not run.modelled], [run for run in runs if run.modelled])
    doubts += [*_warned(runs), *_unlike(runs)]
    doubts.append(
        "± is the standard deviation of the trials shown (population), not an interval of the mean."
    )
    return doubts


def _warned(runs: Sequence[Run]) -> list[str]:
    """What the results are warned of, and which groups; how few trials there are is in the table."""
    groups: dict[str, dict[str, None]] = {}
    for run in runs:
        for code in run.cautions:
            if code not in (FEW_TRIALS.code, SIMULATED.code):
                groups.setdefault(titles([code]), {})[run.group] = None
    listed = "; ".join(f"{title} ({named(names, ', ')})" for title, names in groups.items())
    return [f"Warnings in the results: {listed}."] if listed else []


def _unlike(runs: Sequence[Run]) -> list[str]:
    """What else differs between the groups: a rank over unlike loads is no rank of devices."""
    found = settings_that(runs, lambda name: len(values_of(runs, name)) > 1)
    if not found:
        return []
    settings = named(found, ", ", _NAMED_SETTINGS)
    return [f"The configurations differ in {settings}: the order is of configurations, not of devices alone."]
