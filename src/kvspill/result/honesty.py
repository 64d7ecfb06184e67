"""The honesty block: what the run asked for beside what the machine saw, and how far to trust it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kvspill.measure.histograms import Histogram
from kvspill.measure.lanes import Lane
from kvspill.records import GIB, NS_PER_SEC, Tier, Verb
from kvspill.result.little import littles_law
from kvspill.result.measured import Measured, ratio
from kvspill.result.schema_honesty import (
    ByteCounts,
    CeilingShare,
    Fault,
    Faults,
    FilesOpened,
    Honesty,
    NfsOperations,
    NfsService,
    OfferedLoad,
    RequestCounts,
    StuckIo,
)
from kvspill.result.stillness import storage_delete_still_seconds, storage_still_seconds

CLIENT_BOUND_SHARE = 0.8
"""A run that reaches this share of what the harness can do without any device measures the harness."""
DRAM_WAIT_SHARE = 0.5
"""A DRAM tier in which entries mostly wait for our own threads says little of the memory (E11)."""
COSTLY_CPU_SECONDS_PER_GIB = 0.5
"""Moving bytes in pieces of a sensible size takes a tenth of this."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What this harness does on this machine with an infinitely fast device (null backend)."""

    requests_per_sec: float | None = None
    operations_per_sec: float | None = None
    gib_per_sec: float | None = None


@dataclass(frozen=True, slots=True)
class Worst:
    """What is of one process and its storage; of several ranks the worst: it neither adds up nor averages."""

    still_seconds: float | None
    delete_still_seconds: float | None
    share: CeilingShare | None


def own_worst(measured: Measured, probes: Mapping[str, Any] | None, ceiling: Ceiling | None) -> Worst:
    """Of one process."""
    return Worst(
        storage_still_seconds(measured),
        storage_delete_still_seconds(measured),
        _ceiling(measured, ceiling, probes or {}),
    )


def worst_of(ranks: Mapping[int, Worst]) -> Worst:
    """Of several: what stands still for one rank is not at work for it because others are (S16).

    Nor does a rank at its own limit have room because others do (E9).
    """
    rows = ranks.values()
    return Worst(
        _most(row.still_seconds for row in rows),
        _most(row.delete_still_seconds for row in rows),
        _nearest({rank: row.share for rank, row in ranks.items()}),
    )


def _nearest(shares: Mapping[int, CeilingShare | None]) -> CeilingShare | None:
    """That of the rank that is nearest to its limits; None where one does not know its own."""
    known = {rank: share for rank, share in shares.items() if share is not None}
    if len(known) < len(shares):
        return None

    def nearness(rank: int) -> tuple[bool, float, float]:
        share = known[rank]
        return bool(share.client_bound), _most(share.share_reached.values()) or 0.0, share.cores_used or 0.0

    rank = max(known, key=nearness)
    return known[rank].model_copy(update={"rank": rank})


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def honesty_block(
    measured: Measured,
    probes: Mapping[str, Any] | None,
    ceiling: Ceiling | None,
    worst: Worst | None = None,
) -> Honesty:
    """Everything that lets a reader doubt the result. None means: not measured.

    worst: where several ranks are one result.
    """
    probes = probes or {}
    worst = worst or own_worst(measured, probes, ceiling)
    opened = _files_opened(measured)
    return Honesty(
        bytes=_bytes(measured, probes),
        direct_io=None if opened is None else _tier_flag(measured, "direct_io"),
        files_opened=opened,
        nfs=_nfs(probes.get("nfs")),
        verified=_tier_flag(measured, "verifies"),
        modelled_tiers=[facts.tier.value for facts in measured.facts.tiers if facts.modelled],
        requests=_requests(measured),
        littles_law=list(littles_law(measured)),
        errors=_errors(measured),
        errors_outside_window=_errors_outside(measured),
        stuck_io=_stuck_io(measured),
        storage_still_seconds=worst.still_seconds,
        storage_delete_still_seconds=worst.delete_still_seconds,
        arrival_lateness_ms=_lateness(measured),
        offered_load=_offered_load(measured, ceiling),
        ceiling=worst.share,
        event_loop_lag_ms=probes.get("event_loop_lag_ms"),
        cpu_seconds=probes.get("cpu_seconds"),
        cpu_wait_seconds=probes.get("cpu_wait_seconds"),
        cpu_wait_share=_cpu_wait_share(measured, probes),
        cpu_others_share=probes.get("cpu_others_share"),
        cpu_seconds_per_gib=_cpu_per_gib(measured, probes),
        peak_resident_bytes=probes.get("peak_resident_bytes"),
        probes={name: probes.get(name) for name in ("block_device", "process_io", "nfs")},
    )


def faults_of(measured: Measured, honesty: Honesty) -> Faults:
    """All that failed from the first request to the last (S13)."""
    failed = max(measured.facts.failed, measured.recorder.requests.failed_count)
    return honesty.faults(failed, measured.facts.completed)


def _asked(measured: Measured, verb: Verb) -> int | None:
    """Bytes as stored that the storage tier was made to move, failed operations included."""
    if measured.tier("storage") is None:
        return None
    lane = measured.recorder.lane(Tier.STORAGE, verb)
    return lane.moved_bytes + lane.failed_moved_bytes


def _bytes(measured: Measured, probes: Mapping[str, Any]) -> ByteCounts:
    asked_read, asked_written = _asked(measured, Verb.READ), _asked(measured, Verb.WRITE)
    storage = measured.tier("storage")
    # Counters only speak of the storage tier where a real one lies on a device that is counted.
    counted = storage is not None and not storage.modelled
    seen = ((probes.get("block_device") or probes.get("nfs")) if counted else None) or {}
    own = (probes.get("process_io") if seen else None) or {}
    others = (probes.get("neighbours") if seen else None) or {}
    device_read, device_written = seen.get("read_bytes"), seen.get("written_bytes")
    # The process's own counter where there is one: others may be reading from the device too.
    fetched_share = ratio(own.get("read_bytes", device_read), asked_read)
    return ByteCounts(
        asked_read_bytes=asked_read,
        asked_written_bytes=asked_written,
        device_read_bytes=device_read,
        device_written_bytes=device_written,
        process_read_bytes=own.get("read_bytes"),
        process_written_bytes=own.get("written_bytes"),
        neighbours=others.get("runs"),
        neighbours_read_bytes=others.get("read_bytes"),
        neighbours_written_bytes=others.get("written_bytes"),
        device_to_asked_read=ratio(device_read, _with(asked_read, others.get("read_bytes"))),
        device_to_asked_written=ratio(device_written, _with(asked_written, others.get("written_bytes"))),
        page_cache_read_share=None if fetched_share is None else min(1.0, max(0.0, 1.0 - fetched_share)),
    )


def _with(asked_bytes: int | None, others_bytes: int | None) -> int | None:
    """What all runs on the device asked of it (R5)."""
    return None if asked_bytes is None else asked_bytes + (others_bytes or 0)


def _tier_flag(measured: Measured, name: str) -> bool | None:
    facts = measured.tier("storage")
    if facts is None or facts.modelled:
        return None
    flag: bool = getattr(facts, name)
    return flag


def _files_opened(measured: Measured) -> FilesOpened | None:
    """Every opening of a file on the storage tier, by what its descriptor says; None where it opened none."""
    facts = measured.tier("storage")
    if facts is None or facts.modelled or not facts.files_opened_direct + facts.files_opened_buffered:
        return None
    return FilesOpened(direct=facts.files_opened_direct, buffered=facts.files_opened_buffered)


def _nfs(counters: Mapping[str, int] | None) -> NfsService | None:
    """The time of NFS operations; None where no mount is NFS, or its kernel counts none."""
    if not counters or "read_operations" not in counters:
        return None
    return NfsService(read=_nfs_operations(counters, "read"), write=_nfs_operations(counters, "write"))


def _nfs_operations(counters: Mapping[str, int], verb: str) -> NfsOperations:
    count = counters.get(f"{verb}_operations", 0)
    sent = counters.get(f"{verb}_transmissions")
    means = {
        name: ratio(counters.get(f"{verb}_{name}"), count) for name in ("queue_ms", "rtt_ms", "execute_ms")
    }
    return NfsOperations(
        operations=count,
        retransmissions=None if sent is None else max(0, sent - count),
        timeouts=counters.get(f"{verb}_timeouts"),
        errors=counters.get(f"{verb}_errors"),
        **means,
    )


def _requests(measured: Measured) -> RequestCounts:
    facts = measured.facts
    return RequestCounts(
        arrived=facts.arrived,
        completed=facts.completed,
        completed_in_window=measured.recorder.requests.completed,
        failed=facts.failed,
        shed=facts.shed,
        unfinished=len(facts.unfinished_ages_ns),
    )


def _errors(measured: Measured) -> list[Fault]:
    return [
        Fault(tier=lane.tier.value, verb=lane.verb.value, kind=kind, count=count)
        for lane in measured.recorder.lanes()
        for kind, count in sorted(lane.errors.items())
    ]


def _errors_outside(measured: Measured) -> list[Fault]:
    """Failed operations of warm-up and drain: in no figure, but a fault nevertheless."""
    rows = []
    for (tier, verb, kind), count in sorted(measured.facts.errors.items()):
        outside = count - measured.recorder.lane(tier, verb).errors[kind]
        if outside > 0:
            rows.append(Fault(tier=tier.value, verb=verb.value, kind=kind, count=outside))
    return rows


def _stuck_io(measured: Measured) -> StuckIo:
    """I/O threads that hung when the load ended."""
    ages_ns = measured.facts.stuck_ages_ns
    oldest_seconds = ages_ns[0] / NS_PER_SEC if ages_ns else None
    where = list(measured.facts.stuck_in)
    return StuckIo(threads=len(ages_ns), oldest_seconds=oldest_seconds, stuck_in=where)


def _lateness(measured: Measured) -> dict[str, float] | None:
    lateness = Histogram()
    lateness.record_all(measured.facts.lateness_ns)
    return lateness.statistics_ms()


def _offered_load(measured: Measured, ceiling: Ceiling | None) -> OfferedLoad:
    """What is asked per second over what the servers could complete on a device that takes no time (L2)."""
    facts, requests = measured.facts, measured.recorder.requests
    # Fixed work takes longer on a slow device, but what was offered is the rate of its intended times.
    end_ns = facts.window_end_ns if facts.arrivals_end_ns is None else facts.arrivals_end_ns
    load_seconds = (end_ns - facts.load_start_ns) / NS_PER_SEC
    offered = ratio(facts.arrived, load_seconds)
    compute_seconds = (requests.generation_ns + requests.other_ns) / NS_PER_SEC
    mean_seconds = ratio(compute_seconds, requests.completed)
    capacity = ratio(measured.settings.servers, mean_seconds)
    limits = [limit for limit in (capacity, ceiling.requests_per_sec if ceiling else None) if limit]
    null_capacity = min(limits) if limits else None
    if null_capacity is None and facts.simulated and requests.completed:
        # In virtual time nothing but generation takes time without a device: without it there is no limit.
        return OfferedLoad(arrivals_per_sec=offered, null_capacity_requests_per_sec=None, ratio=0.0)
    return OfferedLoad(
        arrivals_per_sec=offered,
        null_capacity_requests_per_sec=null_capacity,
        ratio=ratio(_taken(measured) if measured.settings.arrival == "closed" else offered, null_capacity),
    )


def _taken(measured: Measured) -> float | None:
    """Requests per second that the servers took: users who wait for their answers ask no faster.

    Of their arrivals those that wait at the end were asked once and for good: a ratio of arrivals would
    fall with the duration.
    """
    recorder, requests = measured.recorder, measured.recorder.requests
    served_ns = requests.parts["end_to_end"].sum_ns - requests.parts["queue"].sum_ns
    inside_ns = recorder.service_ns + measured.facts.under_way_service_ns
    return measured.per_second(ratio(inside_ns * requests.completed, served_ns))


def _ceiling(measured: Measured, ceiling: Ceiling | None, probes: Mapping[str, Any]) -> CeilingShare | None:
    if ceiling is None:
        return None
    lanes = measured.lanes(Verb.READ, Verb.WRITE)
    reached = Ceiling(
        requests_per_sec=measured.per_second(measured.recorder.requests.completed),
        operations_per_sec=measured.per_second(sum(lane.op_count for lane in lanes)),
        gib_per_sec=measured.per_second(sum(lane.byte_count for lane in lanes) / GIB),
    )
    shares = {name: ratio(value, getattr(ceiling, name)) for name, value in asdict(reached).items()}
    known = [share for share in shares.values() if share is not None]
    cores_used = ratio(probes.get("cpu_seconds"), measured.wall_seconds)
    per_gib = _cpu_per_gib(measured, probes)
    costly = (per_gib or 0.0) >= COSTLY_CPU_SECONDS_PER_GIB
    # The null backend has no pieces: what those cost shows in the processor time alone.
    busy = costly and cores_used is not None and cores_used >= CLIENT_BOUND_SHARE
    waiting = _dram_wait_share(measured)
    waits = waiting is not None and waiting >= DRAM_WAIT_SHARE
    return CeilingShare(
        null_backend=asdict(ceiling),
        share_reached=shares,
        cores_used=cores_used,
        cpu_seconds_per_gib=per_gib,
        dram_wait_share=waiting,
        client_bound=(waits or busy or max(known) >= CLIENT_BOUND_SHARE) if known else None,
    )


def _dram_wait_share(measured: Measured) -> float | None:
    """How much of the time in the DRAM tier was none of the memory's; None where the tier is not real."""
    facts = measured.tier("cpu")
    if facts is None or facts.modelled:
        return None
    lanes = [lane for lane in measured.lanes(Verb.READ, Verb.WRITE) if lane.tier is Tier.CPU]
    host_ns, total_ns = (
        sum(lane.latencies.component(name).sum_ns for lane in lanes) for name in ("host", "total")
    )
    return ratio(host_ns, total_ns)


def _real_lanes(measured: Measured) -> list[Lane]:
    real = {facts.tier for facts in measured.facts.tiers if not facts.modelled}
    return [lane for lane in measured.lanes(Verb.READ, Verb.WRITE) if lane.tier in real]


def _cpu_per_gib(measured: Measured, probes: Mapping[str, Any]) -> float | None:
    moved = sum(lane.moved_bytes for lane in _real_lanes(measured))
    return ratio(probes.get("cpu_seconds"), moved / GIB)


def _cpu_wait_share(measured: Measured, probes: Mapping[str, Any]) -> float | None:
    inside_ns = sum(lane.pieces.sum_ns for lane in _real_lanes(measured))
    return ratio(probes.get("cpu_wait_seconds"), inside_ns / NS_PER_SEC)


def lateness_p99_ms(block: Honesty) -> float | None:
    """The figure that decides whether arrivals were on time."""
    statistics = block.arrival_lateness_ms
    return None if statistics is None else float(statistics["p99"])
