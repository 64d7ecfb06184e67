"""Which metric tells two systems apart: ratios and win rates over the configurations both have run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from kvspill.errors import UsageError
from kvspill.measure.statistics import coefficient_of_variation
from kvspill.report.columns import (
    COLUMN,
    COLUMNS,
    CONFIGURATION,
    DECODE_BYTES,
    IO_TIME,
    STORAGE_THROUGHPUT,
    WALL_THROUGHPUT,
    finite,
)
from kvspill.report.compare.run import Run
from kvspill.report.compare.statistics import Ratio, ratio_of_pairs, win_rate

CANDIDATES = (DECODE_BYTES, WALL_THROUGHPUT, STORAGE_THROUGHPUT)
"""Figures that can serve as the score of a submission."""

PRIMARY = "primary"
SECONDARY = "secondary"
NOT_RECOMMENDED = "not recommended"

RELIABLE_WINS = 0.95
"""A metric that names the wrong system more often than this allows is no score."""
NEAR_THE_BEST = 0.9
"""Metrics whose typical ratio comes this near the best one are recommended with it."""

_NUMBERS = ("cpu_mem_gb", "max_concurrent_allocs", "num_users")
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration with both systems' figures."""

    config: Mapping[str, Any]
    first: Mapping[str, float]
    second: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """One metric over some pairs: first over second, averaged in each of the usual ways."""

    count: int
    mean: float
    median: float
    geometric: Ratio | None
    of_means: float | None
    """Mean of the first system's values over the mean of the second's."""
    wins: float | None
    """Share of pairs in which the first system is better."""


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


@dataclass(frozen=True, slots=True)
class Advice:
    """What to make of one metric at one amount of CPU memory."""

    cpu_mem: str
    metric: str
    rank: str
    reason: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """Everything that the analysis found."""

    first_name: str
    second_name: str
    first_runs: int
    second_runs: int
    pairs: int
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
    pairs = match(first, second)
    if not pairs:
        raise UsageError(
            f"no configuration appears in both {first_name} and {second_name}; the analysis needs runs with "
            "the same model, CPU memory, allocation limit, generation mode and users on either side"
        )
    overall = _slice("all", pairs)
    by_cpu_mem = _slices(pairs, lambda config: _gb(config["cpu_mem_gb"]))
    by_allocs = _slices(pairs, _cpu_and_allocs)
    advice = [item for part in by_cpu_mem for item in advise(part, leads(overall))]
    return Discovery(
        first_name=first_name,
        second_name=second_name,
        first_runs=len(first),
        second_runs=len(second),
        pairs=len(pairs),
        overall=overall,
        by_cpu_mem=by_cpu_mem,
        by_model=_slices(pairs, lambda config: str(config["model"])),
        by_users=_slices(pairs, lambda config: f"{config['num_users']:g}"),
        by_allocs=by_allocs,
        variation=_variation(pairs),
        advice=tuple(advice),
        notes=(*_findings(advice, by_allocs, leads(overall)), *_notes(first, second, pairs)),
    )


def _key(run: Run) -> Key | None:
    settings = tuple(run.config.get(name) for name in CONFIGURATION)
    numbers = all(finite(run.config.get(name)) is not None for name in _NUMBERS)
    return settings if numbers and None not in settings else None


def match(first: Sequence[Run], second: Sequence[Run]) -> list[Pair]:
    """Configurations of both sides, in order; several runs of one configuration count by their median."""
    ours, theirs = _by_configuration(first), _by_configuration(second)
    return [
        Pair(dict(zip(CONFIGURATION, key, strict=True)), _medians(ours[key]), _medians(theirs[key]))
        for key in sorted(ours.keys() & theirs.keys(), key=str)
    ]


def _by_configuration(runs: Sequence[Run]) -> dict[Key, list[Run]]:
    found: dict[Key, list[Run]] = {}
    for run in runs:
        key = _key(run)
        if key is not None and run.incomplete is None:
            found.setdefault(key, []).append(run)
    return found


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    names = set.intersection(*(set(run.values) for run in runs))
    return {name: median(run.values[name] for run in runs) for name in names}


def _gb(value: float) -> str:
    return f"{value:g} GB"


def _cpu_and_allocs(config: Mapping[str, Any]) -> str:
    return f"{_gb(config['cpu_mem_gb'])}, allocs {config['max_concurrent_allocs']:g}"


def _slices(pairs: Sequence[Pair], label: Callable[[Mapping[str, Any]], str]) -> tuple[Slice, ...]:
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        parts.setdefault(label(pair.config), []).append(pair)
    return tuple(_slice(name, parts[name]) for name in sorted(parts, key=_natural))


def _natural(label: str) -> tuple[Any, ...]:
    """Numbers in a label by size, words by letter."""
    words = label.replace(",", " ").split()
    return tuple(
        (0, float(word), "") if word.replace(".", "", 1).isdigit() else (1, 0.0, word) for word in words
    )


def _slice(label: str, pairs: Sequence[Pair]) -> Slice:
    spreads = {column.name: _spread(column.name, pairs) for column in COLUMNS}
    return Slice(label, len(pairs), {name: spread for name, spread in spreads.items() if spread is not None})


def _spread(name: str, pairs: Sequence[Pair]) -> Spread | None:
    both = [
        (pair.first[name], pair.second[name]) for pair in pairs if name in pair.first and name in pair.second
    ]
    usable = [(ours, theirs) for ours, theirs in both if ours > 0 and theirs > 0]
    if not usable:
        return None
    ratios = [ours / theirs for ours, theirs in usable]
    return Spread(
        count=len(ratios),
        mean=fmean(ratios),
        median=median(ratios),
        geometric=ratio_of_pairs(ratios),
        of_means=fmean(ours for ours, _ in usable) / fmean(theirs for _, theirs in usable),
        wins=win_rate(ratios, COLUMN[name].better),
    )


def _variation(pairs: Sequence[Pair], name: str = STORAGE_THROUGHPUT) -> tuple[Variation, ...]:
    found = []
    for users in sorted({pair.config["num_users"] for pair in pairs}):
        here = [pair for pair in pairs if pair.config["num_users"] == users]
        first = [pair.first[name] for pair in here if name in pair.first]
        second = [pair.second[name] for pair in here if name in pair.second]
        found.append(
            Variation(users, len(here), coefficient_of_variation(first), coefficient_of_variation(second))
        )
    return tuple(found)


def leads(overall: Slice) -> bool:
    """Whether the first system is the faster one, by most of the candidates."""
    ratios = [overall.metrics[name].median for name in CANDIDATES if name in overall.metrics]
    return sum(1 if ratio > 1 else -1 for ratio in ratios) >= 0


def advise(part: Slice, first_leads: bool) -> list[Advice]:
    """Rank the candidates: first those that nearly always name the faster system, then by how far apart."""
    known = {name: part.metrics[name] for name in CANDIDATES if name in part.metrics}
    wins = {name: _leader_share(spread, first_leads) for name, spread in known.items()}
    apart = {name: spread.median if first_leads else 1 / spread.median for name, spread in known.items()}
    best = max((apart[name] for name in known if wins[name] >= RELIABLE_WINS), default=0.0)
    found = []
    for name in sorted(known, key=lambda name: (wins[name] < RELIABLE_WINS, -apart[name])):
        text = f"names the faster system in {wins[name]:.0%} of {known[name].count} configurations"
        if wins[name] < RELIABLE_WINS:
            rank, reason = NOT_RECOMMENDED, f"{text}{_why_it_fails(name, part)}"
        elif apart[name] >= NEAR_THE_BEST * best:
            rank, reason = PRIMARY, f"{text}, at a median of {apart[name]:.2f}x"
        else:
            rank = SECONDARY
            reason = f"{text}, but at a median of {apart[name]:.2f}x where another shows {best:.2f}x"
        found.append(Advice(part.label, name, rank, reason))
    return found


def _leader_share(spread: Spread, first_leads: bool) -> float:
    wins = spread.wins or 0.0
    return wins if first_leads else 1 - wins


def _why_it_fails(name: str, part: Slice) -> str:
    """Where throughput over I/O time fails, its two halves usually cancel: show that they do."""
    tokens, io_time = part.metrics.get("total_tokens"), part.metrics.get(IO_TIME)
    if name != STORAGE_THROUGHPUT or tokens is None or io_time is None:
        return ""
    if tokens.median <= 1 or io_time.median <= 1:
        return ""
    return (
        f": it does {tokens.median:.2f}x the tokens but also adds up {io_time.median:.2f}x the I/O time, "
        "because more requests wait at once"
    )


def _findings(advice: Sequence[Advice], by_allocs: Sequence[Slice], first_leads: bool) -> list[str]:
    """Where a rejected metric works after all once the limit on allocations is looked at."""
    found = []
    if not first_leads:
        found.append("The first system is the slower one: ratios below 1 are the second system's wins.")
    for item in advice:
        if item.rank != NOT_RECOMMENDED:
            continue
        parts = [
            part
            for part in by_allocs
            if part.label.startswith(f"{item.cpu_mem},") and item.metric in part.metrics
        ]
        shares = {part.label: _leader_share(part.metrics[item.metric], first_leads) for part in parts}
        good = [part for part in parts if shares[part.label] >= RELIABLE_WINS]
        if good and len(good) < len(parts):
            medians = "; ".join(f"{part.label}: {part.metrics[item.metric].median:.2f}x" for part in parts)
            found.append(
                f"{COLUMN[item.metric].title} at {item.cpu_mem} depends on the limit on concurrent "
                f"allocations (median ratio at {medians}): requests that wait for a slot add to the I/O time "
                "on both systems."
            )
    return found


def _notes(first: Sequence[Run], second: Sequence[Run], pairs: Sequence[Pair]) -> tuple[str, ...]:
    notes = [
        "Mean, median, geometric mean and ratio of means answer different questions and differ by tens of "
        "percent where ratios scatter; a published figure that names none of them may not be found here.",
        "The variation is between configurations with equal users (models, memory, limits), not between "
        "repeats of one: repeats are needed to know the noise.",
    ]
    set_aside = [run for run in (*first, *second) if run.incomplete is not None]
    if set_aside:
        named = "; ".join(f"{run.name} {run.incomplete}" for run in set_aside[:5])
        more = f" and {len(set_aside) - 5} more" if len(set_aside) > 5 else ""
        notes.append(f"Set aside, in no figure: {named}{more}.")
    unnamed = sum(1 for run in (*first, *second) if _key(run) is None)
    if unnamed:
        notes.append(f"{unnamed} runs say nothing of their configuration and were left out.")
    unmatched = len(_by_configuration(first)) + len(_by_configuration(second)) - 2 * len(pairs)
    if unmatched:
        notes.append(f"{unmatched} configurations ran on one side only and were left out.")
    return tuple(notes)
