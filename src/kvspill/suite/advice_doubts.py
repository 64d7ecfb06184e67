"""What keeps a row from bearing advice: too few requests, a disturbance, or a warning that qualifies it."""

from collections.abc import Iterable, Iterator, Mapping

from kvspill.suite.facts import Figures

Found = Mapping[str, Figures]
REQUESTS_MIN = 30
"""Fewer completed requests than this say nothing about which set-up serves more."""
FEW_REQUESTS = 100
_MISSES_COST = 0.03
"""Below this share of misses more room would hardly change what users get."""
DISTURBED = {
    "memory_directory": "ran in memory, not on a device",
    "not_direct": "ran through the page cache",
    "page_cache": "was served by the page cache in part",
    "not_written": "left what it wrote in memory",
    "device_excess": "shared the device with others, or its traffic was multiplied below",
    "client_bound": "was held back by this program",
}
"""Warnings after which a row's throughput is not that of its tiers."""
_DOUBTS = {
    "memory_directory": "the storage tier lay in memory, so nothing here describes a device",
    "not_direct": "storage went through the page cache, so its figures are not the device's",
    "page_cache": "the page cache served reads, so the device looks faster than it is",
    "not_written": "writes ended before they were on the device, so it looks faster than it is",
    "device_excess": "the device moved more than was asked of it: others used it, or it amplifies traffic",
    "client_bound": "this program was near its own ceiling, so a faster device would not have shown",
    "event_loop_lag": "this program lagged, so host and queue times contain that",
    "overload": "more was asked than could be served, so its latencies describe the queue",
    "not_steady": "throughput had not settled, so a longer run may differ",
    "too_short": "the window was too short to tell whether throughput had settled",
    "half_done": "many requests were half done at its end, so its rates of tokens and requests are rough",
    "no_verdict": "some classes had too few requests for a verdict on their latency",
    "few_trials": "fewer than three trials, so the spread between runs is unknown; give --trials 3",
}
_PROVISIONAL = ("not_steady", "too_short", "half_done", "few_trials", "event_loop_lag")


def too_few(row: Figures) -> bool:
    return row.completed < REQUESTS_MIN


def disturbances(row: Figures) -> list[str]:
    """Why this row's throughput is not that of its tiers; the reasons in words."""
    return [meaning for code, meaning in DISTURBED.items() if code in row.warnings]


def fit(row: Figures) -> bool:
    """Whether advice may rest on this row."""
    return not too_few(row) and not disturbances(row)


def reservations(rows: Iterable[Figures]) -> list[str]:
    """Warnings of these rows that make advice provisional."""
    rows = list(rows)
    return [code for code in _PROVISIONAL if any(code in row.warnings for row in rows)]


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
            yield f"No purchase is advised from {row.name}: it {' and '.join(reasons)}."


def doubts(found: Found) -> Iterator[str]:
    """Each kind of doubt once, with the rows that have it."""
    for code, meaning in _DOUBTS.items():
        rows = [row for row in found.values() if code in row.warnings and _meant(code, row)]
        if rows:
            yield f"Doubt about {_named(rows, found)}: {meaning}."
    yield from _capacity(found)
    few = [row for row in found.values() if row.completed < FEW_REQUESTS]
    if few:
        yield f"Doubt about {_named(few, found)}: fewer than {FEW_REQUESTS} requests completed; run longer."
    if any(row.simulated for row in found.values()):
        yield "All of this is simulated: it holds for the modelled devices, not for this machine's."


def _meant(code: str, row: Figures) -> bool:
    if code != "overload":
        return True
    # storage-saturation overloads on purpose, and users who wait for their answers cannot overload.
    return row.name != "storage-saturation" and row.arrival == "open" and not too_few(row)


def _capacity(found: Found) -> Iterator[str]:
    """Entries dropped from the last tier: a loss only where lookups missed."""
    # Memory without storage below it drops entries by design.
    rows = [row for row in found.values() if "capacity_bound" in row.warnings and "storage" in row.tiers]
    costly = [row for row in rows if row.hit_rate is not None and 1 - row.hit_rate > _MISSES_COST]
    if costly:
        misses = ", ".join(f"{1 - (row.hit_rate or 0.0):.0%}" for row in costly)
        yield (
            f"Doubt about {_named(costly, found)}: entries were dropped for lack of space and {misses} of "
            "the lookups missed, so more capacity alone would help."
        )
    cheap = [row for row in rows if row not in costly]
    if cheap:
        yield (
            f"In {_named(cheap, found)} entries were dropped for lack of space, but hardly a lookup missed: "
            "compare only with runs of the same capacity."
        )


def _named(rows: list[Figures], found: Found) -> str:
    if len(rows) == len(found) and len(rows) > 2:
        return "every row"
    return ", ".join(row.name for row in rows)
