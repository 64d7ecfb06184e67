"""Several groups of trials beside each other: mean and spread of each, and how far above the slowest."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from kvspill.report.columns import COLUMN, COLUMNS, STORAGE_THROUGHPUT, WALL_THROUGHPUT
from kvspill.report.compare.runs import INFERENCE, Run

METRIC_OF_KIND = {INFERENCE: WALL_THROUGHPUT}


@dataclass(frozen=True, slots=True)
class Average:
    """Mean and standard deviation of all trials given (population: these trials and no others)."""

    count: int
    mean: float
    deviation: float

    @property
    def cv(self) -> float | None:
        return self.deviation / self.mean if self.mean else None


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
    speedup: float
    """Over the slowest group of the same kind, all trials."""
    metrics: dict[str, Average]


@dataclass(frozen=True, slots=True)
class Ranking:
    """All groups, fastest first within their kind, and the trials behind them."""

    groups: tuple[Group, ...]
    runs: tuple[Run, ...]
    doubts: tuple[str, ...]


def rank(runs: Sequence[Run]) -> Ranking:
    """Group trials by name and put the groups in order of their metric."""
    named: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        named.setdefault((_family(run), run.group), []).append(run)
    found = []
    for family in dict.fromkeys(family for family, _ in named):
        metric = METRIC_OF_KIND.get(family, STORAGE_THROUGHPUT)
        members = {group: trials for (kind, group), trials in named.items() if kind == family}
        found += _family_groups(family, metric, members)
    ordered = tuple(sorted(runs, key=lambda run: (run.kind == INFERENCE, run.group, run.name)))
    return Ranking(tuple(found), ordered, tuple(_doubts(runs, len({_family(run) for run in runs}) > 1)))


def _family(run: Run) -> str:
    return INFERENCE if run.kind == INFERENCE else "storage"


def _average(runs: Sequence[Run], metric: str) -> Average | None:
    values = [run.values[metric] for run in runs if metric in run.values]
    return Average(len(values), fmean(values), pstdev(values)) if values else None


def _family_groups(family: str, metric: str, members: dict[str, list[Run]]) -> list[Group]:
    averages = {name: average for name, trials in members.items() if (average := _average(trials, metric))}
    slowest = min((average.mean for average in averages.values() if average.mean > 0), default=0.0)
    groups = []
    for name, average in sorted(averages.items(), key=lambda item: -item[1].mean):
        trials = members[name]
        complete = [run for run in trials if run.incomplete is None]
        every = {column.name: found for column in COLUMNS if (found := _average(trials, column.name))}
        groups.append(
            Group(
                name=name,
                kind=family,
                metric=metric,
                everything=average,
                complete=_average(complete, metric),
                speedup=average.mean / slowest if slowest else 1.0,
                metrics=every,
            )
        )
    return groups


def _doubts(runs: Sequence[Run], mixed: bool) -> list[str]:
    doubts = []
    set_aside = [run for run in runs if run.incomplete is not None]
    if set_aside:
        named = "; ".join(f"{run.name} {run.incomplete}" for run in set_aside)
        doubts.append(f"Did not complete: {named}. The column of complete trials leaves them out.")
    if mixed:
        title = COLUMN[STORAGE_THROUGHPUT].title
        doubts.append(
            f"Inference engines are ranked by their wall clock and the others by {title}: one measures real "
            "inference, the other storage I/O alone, and the two are not comparable."
        )
    if any(run.simulated for run in runs):
        doubts.append(
            "Some runs are simulated: " + ", ".join(run.name for run in runs if run.simulated) + "."
        )
    doubts.append(
        "± is the standard deviation of the trials shown (population), not an interval of the mean."
    )
    return doubts
