"""The honesty block as the console shows it."""

from collections.abc import Iterator, Sequence

from kvspill.measure.steady import STEADY
from kvspill.report.numbers import UNMEASURED, number, share, volume, yes_no
from kvspill.report.parts import Part, pairs, title
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import ByteCounts, CeilingShare, Honesty, LittlesLaw
from kvspill.texts import counted, duration

LOAD_ASKED = "Load / capacity without I/O"
ARRIVALS_LATE = "Arrivals late by (p99)"
KVSPILL_LATE = "kvspill itself late by (p99)"
LIMITED_BY_KVSPILL = "Limited by kvspill itself"
"""Lines that console and page call alike; docs/trust.md explains each."""


def honesty_section(result: Result) -> Iterator[Part]:
    block = result.honesty
    yield title("HONESTY")
    nbytes, ceiling = block.bytes, block.ceiling
    lag, late = block.event_loop_lag_ms, block.arrival_lateness_ms
    written = nbytes.asked_written_bytes, nbytes.device_written_bytes
    yield pairs(
        (
            ("Asked of storage, read", _against(nbytes.asked_read_bytes, nbytes.device_read_bytes)),
            ("Asked of storage, written", _against(*written)),
            *_neighbours(nbytes),
            *_nfs(block),
            ("Read from the page cache", share(nbytes.page_cache_read_share)),
            ("O_DIRECT", _opened_direct(block)),
            *_store(result),
            ("Every block verified", yes_no(block.verified)),
            (LOAD_ASKED, _load_asked(block.offered_load.ratio)),
            (ARRIVALS_LATE, duration(late["p99"]) if late else _no_server_waited(result)),
            (KVSPILL_LATE, duration(lag["p99"]) if lag else UNMEASURED),
            ("Ceiling without a device", _ceiling(ceiling)),
            (LIMITED_BY_KVSPILL, yes_no(ceiling.client_bound) if ceiling else UNMEASURED),
            ("Waited for a processor", number(block.cpu_wait_seconds, " s")),
            ("CPU seconds per GiB", number(block.cpu_seconds_per_gib, digits=3)),
            ("Peak resident memory", volume(block.peak_resident_bytes)),
            ("In flight at the end", _in_flight(result)),
            *_littles_law(block.littles_law),
            ("Steady state", steady_text(result)),
        )
    )


def _load_asked(ratio: float | None) -> str:
    """With what it is a ratio of."""
    return UNMEASURED if ratio is None else f"{number(ratio)} (asked / possible if I/O took no time)"


def steady_text(result: Result) -> str:
    """Whether the rates were steady; a queue may grow steadily, too."""
    if result.steady_state is None:
        return UNMEASURED
    verdict = result.steady_state.verdict
    grew = any(row.explained and row.mean_seconds_by_law is None for row in result.honesty.littles_law)
    return f"{verdict} rates, but the number waiting grew" if grew and verdict == STEADY else verdict


def _neighbours(nbytes: ByteCounts) -> Iterator[tuple[str, str]]:
    """Other runs on the device, where there were some: their bytes are among the device's."""
    if nbytes.neighbours:
        read, written = volume(nbytes.neighbours_read_bytes), volume(nbytes.neighbours_written_bytes)
        yield "Other runs on the device", f"{nbytes.neighbours}: read {read}, wrote {written}"


def _store(result: Result) -> Iterator[tuple[str, str]]:
    """Requests to a store, where the storage tier is one."""
    storage = result.tier("storage")
    if storage is None or "get_requests" not in storage.counters:
        return
    counters = storage.counters
    verbs = ("get", "put", "delete", "list")
    yield "Requests to the store", ", ".join(f"{counters[f'{verb}_requests']:,} {verb}" for verb in verbs)
    throttled = f", {counters['throttled_requests']:,} of them throttled"
    yield "Repeated requests", f"{counters['repeated_requests']:,}{throttled}"
    first = [result.number(f"storage_read_first_byte_{stat}_ms") for stat in ("p50", "p95")]
    yield "First byte (p50, p95)", ", ".join(duration(value) for value in first)
    if "cost" in counters:
        yield "Cost at the prices given", f"{counters['cost']:,.4f}"


def _nfs(block: Honesty) -> Iterator[tuple[str, str]]:
    """What the NFS client counted, where the storage is NFS."""
    service = block.nfs
    if service is None:
        return
    for name, part in (("reads", service.read), ("writes", service.write)):
        if part is not None and part.operations:
            yield (
                f"NFS {name}",
                f"{part.operations:,}: answered in {duration(part.rtt_ms)}, done in "
                f"{duration(part.execute_ms)} on average, {part.retransmissions or 0:,} sent again",
            )


def _in_flight(result: Result) -> str:
    """Operations that the end of the window found under way; they are in the latencies with their age."""
    rows = result.in_flight_at_end
    if rows is None:
        return UNMEASURED
    count = sum(row.count for row in rows)
    oldest_ms = max((row.oldest_ms or 0.0 for row in rows), default=0.0)
    return f"{counted(count, 'operation')}, the oldest for {duration(oldest_ms)}" if count else "none"


_MEMORY = {"cpu": "DRAM", "gpu": "GPU"}


def _littles_law(rows: Sequence[LittlesLaw]) -> Iterator[tuple[str, str]]:
    """The row of all requests says nothing new where hardly one of them waited for a server."""
    said: set[str] = set()
    for row in rows:
        text = _little(row)
        if text not in said:
            yield f"Little's law, {_MEMORY.get(row.what, row.what)}", text
        said.add(text)


def _little(row: LittlesLaw) -> str:
    """N = X * R, and what it says where the two differ."""
    if row.in_system is None or row.rate_per_sec is None or row.mean_seconds is None:
        return UNMEASURED
    text = f"{row.in_system:,.2f} under way, {row.rate_per_sec:,.2f}/s x {duration(1000 * row.mean_seconds)}"
    if row.deviation is None:
        return text
    return f"{text} = {1 + row.deviation:.0%} of it" + (f"; {row.explained}" if row.explained else "")


def _no_server_waited(result: Result) -> str:
    """Arrivals are timed where a server waits for them; in an overload none does."""
    return UNMEASURED if result.simulated or not result.honesty.requests.arrived else "no server waited"


def _ceiling(ceiling: CeilingShare | None) -> str:
    """What this program reaches on the null backend, and how much of that this run did."""
    if ceiling is None:
        return UNMEASURED
    able, reached = ceiling.null_backend, ceiling.share_reached
    parts = [
        f"{number(able[name], unit, digits)} ({share(reached.get(name))} reached)"
        for name, unit, digits in (("operations_per_sec", " ops/s", 0), ("gib_per_sec", " GiB/s", 1))
        if able.get(name) is not None
    ]
    whose = "" if ceiling.rank is None or not parts else f"rank {ceiling.rank}: "
    return whose + ", ".join(parts) or UNMEASURED


def _against(asked: int | None, seen: int | None) -> str:
    return UNMEASURED if asked is None else f"{volume(asked)}, device {volume(seen)}"


def _opened_direct(block: Honesty) -> str:
    opened = block.files_opened
    if opened is None:
        return UNMEASURED
    if opened.direct and not opened.buffered:
        each = "each of " if opened.direct > 1 else ""
        return f"yes, at {each}{counted(opened.direct, 'opening')} of a file"
    return f"at {opened.direct:,} of {counted(opened.direct + opened.buffered, 'opening')} of a file"
