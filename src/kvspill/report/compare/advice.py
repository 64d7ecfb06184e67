"""Which metric to use at which amount of CPU memory, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvspill.report.columns import COLUMN, IO_TIME, STORAGE_THROUGHPUT, WALL_THROUGHPUT
from kvspill.report.compare.ratios import ALIKE, BETTER, CANNOT_TELL, verdict
from kvspill.report.compare.spreads import CANDIDATES, Slice, Spread
from kvspill.texts import counted

PRIMARY = "primary"
SECONDARY = "secondary"
NOT_RECOMMENDED = "not recommended"

RELIABLE_WINS = 0.95
"""A metric that names the wrong system more often than this allows is no score."""
NEAR_THE_BEST = 0.9
"""Metrics whose typical ratio comes this near the best one are recommended with it."""
FEW_CONFIGURATIONS = 3
"""Nothing is recommended from fewer."""
_LIMIT_MATTERS = 1.25
"""Medians at two limits that are less far apart than this don't depend on the limit."""

FIRST, SECOND, NEITHER = 1, -1, 0


@dataclass(frozen=True, slots=True)
class Advice:
    """What to make of one metric at one amount of CPU memory."""

    cpu_mem: str
    metric: str
    rank: str
    reason: str


def leader(part: Slice) -> int:
    """The faster system, by most of the candidates that can tell; NEITHER where none can."""
    votes = {name: _vote(part.metrics[name], name) for name in CANDIDATES if name in part.metrics}
    total = sum(votes.values()) or votes.get(WALL_THROUGHPUT, NEITHER)
    return FIRST if total > 0 else SECOND if total < 0 else NEITHER


def _vote(spread: Spread, name: str) -> int:
    if spread.geometric is not None and spread.geometric.low is not None:
        said = verdict(spread.geometric, COLUMN[name].better)
        return NEITHER if said == ALIKE else FIRST if said == BETTER else SECOND
    ahead = (spread.wins or 0.0) - (spread.losses or 0.0)
    return FIRST if ahead > 0 else SECOND if ahead < 0 else NEITHER


def advise(part: Slice, names: tuple[str, str]) -> list[Advice]:
    """Rank the candidates: first those that nearly always name the faster system, then by how far apart."""
    known = {name: part.metrics[name] for name in CANDIDATES if name in part.metrics}
    ahead = leader(part)
    if part.count < FEW_CONFIGURATIONS:
        count = counted(part.count, "configuration")
        few = f"{count}: too few to recommend from; run {FEW_CONFIGURATIONS} or more"
        return [Advice(part.label, name, CANNOT_TELL, few) for name in known]
    if ahead == NEITHER:
        return [Advice(part.label, name, CANNOT_TELL, _alike(known[name], names)) for name in known]
    wins = {name: _share(spread, ahead) for name, spread in known.items()}
    apart = {name: _apart(spread, ahead) for name, spread in known.items()}
    best = max((apart[name] for name in known if wins[name] >= RELIABLE_WINS), default=0.0)
    found = []
    for name in sorted(known, key=lambda name: (wins[name] < RELIABLE_WINS, -apart[name])):
        faster = names[0] if ahead == FIRST else names[1]
        count = counted(known[name].count, "configuration")
        text = f"names the faster system ({faster}) in {wins[name]:.0%} of {count}"
        if wins[name] < RELIABLE_WINS:
            rank, reason = NOT_RECOMMENDED, f"{text}{_ties(known[name])}{_why_it_fails(name, part)}"
        elif apart[name] >= NEAR_THE_BEST * best:
            rank, reason = PRIMARY, f"{text}, at a median of {_times(apart[name])}"
        else:
            rank = SECONDARY
            reason = f"{text}, but at a median of {_times(apart[name])} where another shows {_times(best)}"
        found.append(Advice(part.label, name, rank, reason))
    return found


def _alike(spread: Spread, names: tuple[str, str]) -> str:
    wins, losses = spread.wins or 0.0, spread.losses or 0.0
    return (
        f"the systems are not distinguishable: of {spread.count} configurations {names[0]} leads in "
        f"{wins:.0%}, {names[1]} in {losses:.0%}, and {max(0.0, 1 - wins - losses):.0%} are equal"
    )


def _ties(spread: Spread) -> str:
    ties = 1 - (spread.wins or 0.0) - (spread.losses or 0.0)
    return f" (equal in {ties:.0%})" if ties > 1e-9 else ""


def _share(spread: Spread, ahead: int) -> float:
    """Share of pairs in which the metric names the faster system; a tie names neither."""
    return (spread.wins if ahead == FIRST else spread.losses) or 0.0


def _apart(spread: Spread, ahead: int) -> float:
    """How far the metric typically sets the faster system above the other."""
    typical = math.inf if spread.median is None else spread.median
    return typical if ahead == FIRST else (1 / typical if typical else math.inf)


def _times(apart: float) -> str:
    return f"{apart:.2f}x" if math.isfinite(apart) else "infinity (the other has nothing)"


def _why_it_fails(name: str, part: Slice) -> str:
    """Where throughput over I/O time fails, its two halves usually cancel: show that they do."""
    tokens, io_time = part.metrics.get("total_tokens"), part.metrics.get(IO_TIME)
    if name != STORAGE_THROUGHPUT or tokens is None or io_time is None:
        return ""
    if (tokens.median or 0.0) <= 1 or (io_time.median or 0.0) <= 1:
        return ""
    return (
        f": it does {tokens.median:.2f}x the tokens but also adds up {io_time.median:.2f}x the I/O time, "
        "because more requests wait at once"
    )


def findings(
    advice: Sequence[Advice], overall: Slice, by_cpu_mem: Sequence[Slice], by_allocs: Sequence[Slice]
) -> list[str]:
    """Who is faster where, and where a rejected metric works once the limit on allocations is looked at."""
    found = []
    first = leader(overall)
    if first == NEITHER:
        found.append("Not distinguishable: over all configurations no candidate tells the two systems apart.")
    elif first == SECOND:
        found.append("The first system is the slower one: ratios below 1 are the second system's wins.")
    leaders = {part.label: leader(part) for part in by_cpu_mem}
    for label, here in leaders.items():
        if NEITHER not in (here, first) and here != first:
            found.append(
                f"At {label} the other system is the faster one: metrics are judged there by naming it."
            )
    for item in advice:
        if item.rank == NOT_RECOMMENDED:
            found += _by_limit(item, leaders[item.cpu_mem], by_allocs)
    return found


def _by_limit(item: Advice, ahead: int, by_allocs: Sequence[Slice]) -> list[str]:
    parts = [
        part
        for part in by_allocs
        if part.label.startswith(f"{item.cpu_mem},") and item.metric in part.metrics
    ]
    medians = {part.label: part.metrics[item.metric].median or 0.0 for part in parts}
    good = [part for part in parts if _share(part.metrics[item.metric], ahead) >= RELIABLE_WINS]
    if not good or len(good) == len(parts) or max(medians.values()) < _LIMIT_MATTERS * min(medians.values()):
        return []
    named = "; ".join(f"{label}: {value:.2f}x" for label, value in medians.items())
    return [
        f"{COLUMN[item.metric].shown_title} at {item.cpu_mem} depends on the limit on concurrent allocations "
        f"(median ratio at {named}): requests that wait for a slot add to the I/O time on both systems."
    ]
