"""Metrics of tiers: bytes, bandwidths and latencies per tier, demotions and pieces (S2, S4-S6, C6)."""

from collections.abc import Callable
from functools import partial

from kvspill.measure.histograms import Histogram
from kvspill.measure.lanes import Lane
from kvspill.records import NS_PER_SEC, REBUILDS, Purpose, Tier, Verb
from kvspill.result.measured import Measured, gib, ratio
from kvspill.result.metrics.metric import Area, Value, cache_stat, column, headline, trials

REUSE_READS = (Purpose.DECODE, *REBUILDS)
PREFILL_WRITES = (Purpose.PREFILL, *REBUILDS)


def _of_lane(value: Callable[[Lane], Value]) -> Callable[..., Value]:
    """A figure of what one tier read or wrote; None where the run had no such tier."""

    def function(m: Measured, tier: str, verb: str) -> Value:
        lane = m.lane(tier, verb)
        return value(lane) if lane else None

    return function


def _times(histogram: Callable[[Lane, str], Histogram]) -> Callable[..., Value]:
    """A statistic of the times of a tier's operations, or of a component of them."""

    def function(m: Measured, tier: str, verb: str, stat: str, component: str = "") -> Value:
        lane = m.lane(tier, verb)
        statistics = (
            m.statistics_ms(histogram(lane, component.removeprefix("_") or "total")) if lane else None
        )
        return statistics[stat] if statistics else None

    return function


_tier_bytes = _of_lane(lambda lane: gib(lane.byte_count))


def _tier_bandwidth(m: Measured, tier: str, verb: str) -> Value:
    lane = m.lane(tier, verb)
    return m.per_second(gib(lane.byte_count)) if lane else None


def _entry_bytes(m: Measured, tier: str, verb: str, size: str) -> Value:
    lane = m.lane(tier, verb)
    percentiles = lane.entry_bytes.percentiles_ns() if lane else None
    return percentiles[size] if percentiles else None


def storage_in_flight(m: Measured) -> float | None:
    """Pieces are inside system calls; what has none is counted whole, waits for a lane included."""
    if m.tier("storage") is None:
        return None
    lanes = [lane for lane in m.lanes(Verb.READ, Verb.WRITE) if lane.tier is Tier.STORAGE]
    inside_ns = sum(lane.pieces.sum_ns or lane.inside_ns for lane in lanes)
    return m.per_second(inside_ns / NS_PER_SEC)


_MEMORY_READS = ((40, "CPU", "read"), (42, "GPU", "read"))
"""Columns of entry sizes that came later than the others of their kind."""

VOLUMES = (
    cache_stat(
        "decode_bytes_read_gb",
        "GiB",
        "bytes read for decode, history, prompts and RAG on any tier, in the window",
        "Compare drives with no memory tier: the most sensitive figure there.",
        "Grows with the duration; compare equal durations only.",
        lambda m: gib(m.bytes_moved(Verb.READ, *REUSE_READS)),
        headline=True,
        better="higher",
        about=(Area.STORAGE,),
        views=(column(25, "Decode Bytes Read (GB)"), headline(3, "Decode bytes read"), trials(4)),
    ),
    cache_stat(
        "prefill_bytes_written_gb",
        "GiB",
        "bytes written for new entries and for rebuilt ones on any tier, demotions not included",
        "The write side of the workload.",
        "With a small capacity evicted entries are written again: see rebuilt_bytes_written_gib.",
        lambda m: gib(m.bytes_moved(Verb.WRITE, *PREFILL_WRITES)),
        better="higher",
        about=(Area.STORAGE,),
        views=(column(24, "Prefill Bytes Written (GB)"),),
    ),
    cache_stat(
        "rebuilt_bytes_written_gib",
        "GiB",
        "bytes written because a history, prompt or RAG entry had been evicted",
        "What a too small cache costs.",
        "Part of prefill_bytes_written_gb, not on top of it.",
        lambda m: gib(m.bytes_moved(Verb.WRITE, *REBUILDS)),
    ),
    cache_stat(
        "total_read_bytes",
        "bytes",
        "logical bytes read on all tiers, demotions included",
        "The sum of the tiers.",
        "A demotion is read on one tier and written on the next.",
        lambda m: m.bytes_moved(Verb.READ),
    ),
    cache_stat(
        "total_write_bytes",
        "bytes",
        "logical bytes written on all tiers, demotions included",
        "The sum of the tiers.",
        "A demotion is read on one tier and written on the next.",
        lambda m: m.bytes_moved(Verb.WRITE),
    ),
    cache_stat(
        "total_read_gb",
        "GiB",
        "total_read_bytes / 2^30",
        "As total_read_bytes.",
        "As total_read_bytes.",
        lambda m: gib(m.bytes_moved(Verb.READ)),
        better="higher",
        about=(Area.STORAGE,),
        views=(column(22, "Total Read (GB)"),),
    ),
    cache_stat(
        "total_write_gb",
        "GiB",
        "total_write_bytes / 2^30",
        "As total_write_bytes.",
        "As total_write_bytes.",
        lambda m: gib(m.bytes_moved(Verb.WRITE)),
        better="higher",
        about=(Area.STORAGE,),
        views=(column(23, "Total Write (GB)"),),
    ),
    cache_stat(
        "read_write_ratio",
        "ratio",
        "total_read_bytes / total_write_bytes",
        "The character of the workload.",
        "Set by the I/O model: engines that read each block once are far below it.",
        lambda m: ratio(m.bytes_moved(Verb.READ), m.bytes_moved(Verb.WRITE)),
        about=(Area.STORAGE,),
        views=(column(21, "Read/Write Ratio"),),
    ),
    cache_stat(
        "read_iops",
        "operations/s",
        "entry reads completed on all tiers / window seconds",
        "The rate of whole-entry reads.",
        "Entries, not device commands: an entry of 256 MiB is one operation.",
        lambda m: m.per_second(m.ops(Verb.READ)),
    ),
    cache_stat(
        "write_iops",
        "operations/s",
        "entry writes completed on all tiers / window seconds",
        "The rate of whole-entry writes.",
        "Entries, not device commands.",
        lambda m: m.per_second(m.ops(Verb.WRITE)),
    ),
    cache_stat(
        "decode_reads",
        "operations",
        "entry reads for decode, history, prompts and RAG",
        "The count behind decode_bytes_read_gb.",
        "Grows with the duration.",
        lambda m: m.ops(Verb.READ, *REUSE_READS),
    ),
    cache_stat(
        "prefill_writes",
        "operations",
        "entry writes for new and rebuilt entries",
        "The count behind prefill_bytes_written_gb.",
        "Grows with the duration.",
        lambda m: m.ops(Verb.WRITE, *PREFILL_WRITES),
    ),
)

TIERS = (
    cache_stat(
        "tier_{tier}_kv_bytes_read_gb",
        "GiB",
        "logical bytes read on that tier, demotions included",
        "Which tier did the work.",
        "Grows with the duration.",
        lambda m, tier: _tier_bytes(m, tier, "read"),
    ),
    cache_stat(
        "tier_{tier}_kv_bytes_written_gb",
        "GiB",
        "logical bytes written on that tier, demotions included",
        "Which tier did the work.",
        "Grows with the duration.",
        lambda m, tier: _tier_bytes(m, tier, "write"),
    ),
    cache_stat(
        "tier_{tier}_{verb}_bandwidth_gbps",
        "GiB/s",
        "that tier's bytes, demotions included / window seconds",
        "The bandwidth the tier sustained: compare drives by storage read and write.",
        "A light load gives a low figure on any drive; compare with the device bytes in honesty.",
        _tier_bandwidth,
        headline=True,
        better="higher",
        about=(Area.STORAGE,),
        views=(
            column(27, "Storage Read Bandwidth (GiB/s)", "tier_storage_read_bandwidth_gbps", digits=3),
            column(28, "Storage Write Bandwidth (GiB/s)", "tier_storage_write_bandwidth_gbps", digits=3),
            headline(4, "Storage read bandwidth", "tier_storage_read_bandwidth_gbps"),
            headline(5, "Storage write bandwidth", "tier_storage_write_bandwidth_gbps"),
            trials(5, "tier_storage_read_bandwidth_gbps"),
            trials(6, "tier_storage_write_bandwidth_gbps"),
        ),
    ),
    cache_stat(
        "storage_busy_gib_per_sec",
        "GiB/s",
        "bytes read and written on the storage tier, demotions included / seconds in which it was busy with "
        "either; ranks on one device count at most one second per second; times of several devices are "
        "added, so this is the speed of one",
        "The speed of the storage, however often it is asked for something: it tells drives apart also where "
        "they wait for the users.",
        "Few operations at once, small entries and writes are slower on any drive: compare equal workloads. "
        "Ranks that use one device in parts of the same second may overlap: this is a lower bound.",
        lambda m: ratio(gib(m.storage_bytes), m.storage_busy_seconds),
        better="higher",
        about=(Area.STORAGE,),
        views=(column(39, "Storage Speed While Busy (GiB/s)", digits=3),),
    ),
    cache_stat(
        "storage_in_flight_mean",
        "I/Os",
        "time that reads and writes of the storage tier were under way, added up / window seconds: that of "
        "the pieces inside system calls; of backends without pieces that of whole entries, from submission",
        "Near --io-threads the device got all that it may be given at once: it was saturated at its depth.",
        "Of a model or a store it counts entries, also those that wait for a lane.",
        storage_in_flight,
    ),
    cache_stat(
        "{tier}_{verb}{component}_{stat}_ms",
        "ms",
        "per entry: total (no suffix) from submission to completion; device = union of the pieces' time "
        "inside system calls; queue = wait for one of the --io-threads lanes of the storage tier, 0 in the "
        "memory tiers; host = total - device - queue; what is in flight at the end of the window counts with "
        "its age then",
        "device tells drives apart; queue says whether more lanes would help; host is the software.",
        "Entries differ in size: see {tier}_{verb}_entry_{size}_bytes, and compare equal workloads.",
        _times(lambda lane, component: lane.latencies.component(component)),
        better="lower",
        about=(Area.STORAGE,),
        views=(
            column(29, "NVMe Read P95 (ms)", "nvme_read_p95_ms"),
            column(30, "NVMe Write P95 (ms)", "nvme_write_p95_ms"),
            column(31, "NVMe Read Device P95 (ms)", "nvme_read_device_p95_ms"),
            column(32, "NVMe Write Device P95 (ms)", "nvme_write_device_p95_ms"),
            column(33, "CPU Read P95 (ms)", "cpu_read_p95_ms"),
            column(34, "GPU Read P95 (ms)", "gpu_read_p95_ms"),
            headline(8, "Storage read in the device, p95", "storage_read_device_p95_ms"),
        ),
    ),
    cache_stat(
        "storage_write_sync_{stat}_ms",
        "ms",
        "per entry written: the time inside the fdatasync that ends it (--sync data, or without O_DIRECT)",
        "What the device takes to make a write durable; the MLPerf harness's own program calls this span its "
        "device write latency.",
        "A part of storage_write_device_*, not on top of it; absent without a sync.",
        partial(_times(lambda lane, _: lane.syncs), tier="storage", verb="write"),
        better="lower",
        about=(Area.STORAGE,),
    ),
    cache_stat(
        "storage_read_first_byte_{stat}_ms",
        "ms",
        "per entry read from an object store: from the first request for it until its answer begins",
        "The store's latency apart from its bandwidth; the rest of storage_read_device_* is the transfer.",
        "A part of storage_read_device_*, not on top of it; null for backends that do not report it.",
        partial(_times(lambda lane, _: lane.first_bytes), tier="storage", verb="read"),
        better="lower",
        about=(Area.STORAGE,),
    ),
    cache_stat(
        "{tier}_{verb}_entry_{size}_bytes",
        "bytes",
        "logical size of the entries that were read or written on that tier, demotions included",
        "Beside the tier's latencies, which are of whole entries.",
        "A percentile of sizes: the entry with the p95 time need not have the p95 size.",
        _entry_bytes,
        about=(Area.STORAGE,),
        views=tuple(
            column(
                first + place,
                f"{tier} {verb.capitalize()} Entry {size.upper()} (bytes)",
                f"{tier.lower()}_{verb}_entry_{size}_bytes",
                digits=0,
            )
            # One pair for each latency above (S15).
            for first, tier, verb in ((35, "NVMe", "read"), (37, "NVMe", "write"), *_MEMORY_READS)
            for place, size in enumerate(("p50", "p95"))
        ),
    ),
    cache_stat(
        "{tier}_delete_{stat}_ms",
        "ms",
        "per deleted entry, from submission to completion",
        "Whether deletes (unlink, trim) load the device.",
        "Deletes run behind the requests, on their own threads.",
        partial(_times(lambda lane, _: lane.latencies.total), verb="delete"),
    ),
    cache_stat(
        "piece_{tier}_{verb}_{stat}_ms",
        "ms",
        "per system call (one piece of --io-size or less)",
        "To compare with fio's completion latency at the same block size.",
        "Modelled tiers have no pieces: null.",
        _times(lambda lane, _: lane.pieces),
    ),
    cache_stat(
        "{tier}_{verb}_ops",
        "operations",
        "entry operations completed without error on that tier, demotions included",
        "The count behind the tier's latencies, beside in_flight_at_end.",
        "Grows with the duration. What is in flight at the end is in the latencies and not here.",
        _of_lane(lambda lane: lane.op_count),
    ),
    cache_stat(
        "{tier}_{verb}_errors",
        "operations",
        "operations that failed on that tier, for any reason",
        "Anything but zero needs an explanation.",
        "Kinds are listed in honesty.",
        _of_lane(lambda lane: lane.error_count),
    ),
    cache_stat(
        "demotion_{tier}_{verb}_gib",
        "GiB",
        "bytes of demotions on that tier: read on the tier above, written on the tier below",
        "How much of a tier's traffic is moving entries down.",
        "Part of the tier's bytes, not on top of them.",
        _of_lane(lambda lane: gib(lane.nbytes[Purpose.DEMOTION])),
    ),
    cache_stat(
        "demotion_{tier}_{verb}_ops",
        "operations",
        "demotion operations on that tier",
        "The count behind demotion latencies, beside those in flight at the end of the window.",
        "Part of the tier's operations.",
        _of_lane(lambda lane: lane.ops[Purpose.DEMOTION]),
    ),
    cache_stat(
        "demotion_{tier}_{verb}{component}_{stat}_ms",
        "ms",
        "as the tier's latencies, demotions only",
        "What a put pays for making room.",
        "Part of the tier's latencies.",
        _times(lambda lane, component: lane.demotion_latencies.component(component)),
    ),
)

TIER_METRICS = VOLUMES + TIERS
