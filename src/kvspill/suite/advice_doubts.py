"""Which rows advice may rest on, and what to say of the others: few requests, disturbances, warnings."""

from collections.abc import Iterable, Iterator

from kvspill.result.warnings.devices import CAPACITY_BOUND
from kvspill.result.warnings.kind import Spoils
from kvspill.result.warnings.known import KINDS, that_spoil
from kvspill.result.warnings.loads import OVERLOAD
from kvspill.result.warnings.rules import MISSES_COST
from kvspill.suite.facts import Figures, Found

REQUESTS_MIN = 30
"""Fewer completed requests than this say nothing about which set-up serves more."""
FEW_REQUESTS = 100


def too_few(row: Figures) -> bool:
    return row.completed < REQUESTS_MIN


def disturbances(row: Figures) -> list[str]:
    """Why this row's throughput is not that of its tiers; the reasons in words."""
    return [kind.means for kind in that_spoil(Spoils.ADVICE, row.warnings) if kind.means]


def fit(row: Figures) -> bool:
    """Whether advice may rest on this row."""
    return not too_few(row) and not disturbances(row)


def reservations(rows: Iterable[Figures]) -> list[str]:
    """Warnings of these rows that make advice provisional."""
    codes = {code for row in rows for code in row.warnings}
    return [kind.code for kind in that_spoil(Spoils.CERTAINTY, codes)]


def why_unfit(rows: Iterable[Figures], flag: str) -> Iterator[str]:
    """Sentences in place of advice."""
    rows = list(rows)
    few = [f"{row.name} {row.completed}" for row in rows if too_few(row)]
    if few:
        yield (
            f"Too few requests to advise: {', '.join(few)} completed, {REQUESTS_MIN} are needed; "
            f"give longer {flag}."
        )
    for row in rows:
        reasons = disturbances(row)
        if reasons:
            yield f"No purchase is advised from {row.name}: {'; '.join(reasons)}."


def doubts(found: Found) -> Iterator[str]:
    """Each warning once, with the rows that have it."""
    for kind in KINDS.values():
        rows = [row for row in found.values() if kind.code in row.warnings and _meant(kind.code, row)]
        if kind.means and rows:
            yield f"{_named(rows, found)}: {kind.means}."
    yield from _capacity(found)
    few = [row for row in found.values() if row.completed < FEW_REQUESTS]
    if few:
        yield f"{_named(few, found)}: fewer than {FEW_REQUESTS} requests completed; run longer."
    if any(row.simulated for row in found.values()):
        yield "All of this is simulated: it holds for the modelled devices, not for this machine's."


def _meant(code: str, row: Figures) -> bool:
    if code != OVERLOAD.code:
        return True
    # storage-saturation overloads on purpose.
    return row.name != "storage-saturation" and not too_few(row)


def _capacity(found: Found) -> Iterator[str]:
    """Entries dropped from the last tier: a loss only where lookups missed."""
    # Memory without storage below it drops entries by design.
    rows = [row for row in found.values() if CAPACITY_BOUND.code in row.warnings and "storage" in row.tiers]
    costly = [row for row in rows if row.hit_rate is not None and 1 - row.hit_rate > MISSES_COST]
    if costly:
        misses = ", ".join(f"{1 - (row.hit_rate or 0.0):.0%}" for row in costly)
        yield (
            f"{_named(costly, found)}: entries were dropped for lack of space and {misses} of the lookups "
            "missed, so more capacity alone would help."
        )
    cheap = [row for row in rows if row not in costly]
    if cheap:
        yield (
            f"{_named(cheap, found)}: entries were dropped for lack of space, but almost every lookup was a "
            "hit; compare only with runs of the same capacity."
        )


def _named(rows: list[Figures], found: Found) -> str:
    if len(rows) == len(found) and len(rows) > 2:
        return "Every row"
    return ", ".join(row.name for row in rows)
