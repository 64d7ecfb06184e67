"""Metrics of requests: throughput, counts, and the bytes that they moved in their time (S3, S7, S10)."""

from collections import Counter

from kvspill.measure.lanes import tokens_of
from kvspill.records import GIB, NS_PER_SEC, Tier, Verb
from kvspill.result.measured import Measured, gib, ratio
from kvspill.result.metrics.metric import Area, Metric, Value, column, headline, trials


def _tokens_per_sec(m: Measured) -> Value:
    return m.per_second(m.recorder.requests.tokens)


def _storage_tokens(m: Measured) -> int | None:
    if m.tier("storage") is None:
        return None
    lanes = (m.recorder.lane(Tier.STORAGE, verb) for verb in (Verb.READ, Verb.WRITE))
    moved: Counter[tuple[int, int]] = Counter()
    for lane in lanes:
        moved.update(lane.bytes_by_entry)
    return tokens_of(moved)


def _all_bytes(m: Measured) -> int:
    return m.bytes_moved(Verb.READ) + m.bytes_moved(Verb.WRITE)


def _io_time_bandwidth(m: Measured) -> float | None:
    return ratio(gib(_all_bytes(m)), m.storage_io_seconds)


def _tier_bandwidth(m: Measured) -> float | None:
    return m.per_second(gib(m.storage_bytes)) if m.tier("storage") else None


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


THROUGHPUT = (
    Metric(
        "avg_throughput_tokens_per_sec",
        "tokens/s",
        "generated tokens of requests completed in the window / window seconds",
        "Compare systems under the same load, especially with no memory tier (storage only).",
        "With a load that the system can follow it shows the load, not the device: see offered load.",
        _tokens_per_sec,
        headline=True,
        better="higher",
        about=(Area.LOAD,),
        views=(
            column(4, "Wall-Clock Throughput (tokens/sec)"),
            headline(1, "Throughput, wall clock"),
            trials(1),
        ),
    ),
    Metric(
        "total_tokens_per_sec",
        "tokens/s",
        "the same as avg_throughput_tokens_per_sec, under its other name",
        "Where a tool looks for this name.",
        "As avg_throughput_tokens_per_sec.",
        _tokens_per_sec,
    ),
    Metric(
        "storage_throughput_tokens_per_sec",
        "tokens/s",
        "generated tokens / total_storage_io_time",
        "Compare tiers or drives where the cache is mixed (some DRAM) and concurrency is equal.",
        "Waiting requests add up: where N wait at once, it is an N-th of the throughput by the clock. Not "
        "comparable between different numbers of users.",
        lambda m: ratio(m.recorder.requests.tokens, m.storage_io_seconds),
        headline=True,
        better="higher",
        about=(Area.LOAD, Area.STORAGE),
        views=(
            column(1, "Storage Throughput (tokens/sec)"),
            headline(2, "Throughput over storage I/O time"),
            trials(2),
        ),
    ),
    Metric(
        "requests_per_second",
        "requests/s",
        "requests completed in the window / window seconds",
        "The service rate, next to the rate at which requests arrive.",
        "Requests differ in size: compare only equal seeds and workloads.",
        lambda m: m.per_second(m.recorder.requests.completed),
        headline=True,
        better="higher",
        about=(Area.LOAD,),
        views=(column(5, "Wall-Clock Requests/sec", digits=3),),
    ),
    Metric(
        "mean_context_tokens",
        "tokens",
        "context tokens of the requests completed in the window / their number",
        "What the requests were like, to compare with your own service.",
        "Long requests complete later: in a short window under overload they are missing.",
        lambda m: ratio(m.recorder.requests.context_tokens, m.recorder.requests.completed),
        about=(Area.LOAD,),
    ),
    Metric(
        "mean_generated_tokens",
        "tokens",
        "generated tokens of the requests completed in the window / their number",
        "As mean_context_tokens.",
        "As mean_context_tokens.",
        lambda m: ratio(m.recorder.requests.tokens, m.recorder.requests.completed),
        about=(Area.LOAD,),
    ),
    Metric(
        "storage_requests_per_sec",
        "requests/s",
        "requests completed in the window / total_storage_io_time",
        "As storage_throughput_tokens_per_sec, in requests.",
        "As storage_throughput_tokens_per_sec.",
        lambda m: ratio(m.recorder.requests.completed, m.storage_io_seconds),
        better="higher",
        about=(Area.LOAD, Area.STORAGE),
        views=(column(2, "Storage Requests/sec", digits=4),),
    ),
    Metric(
        "nvme_throughput",
        "tokens/s",
        "nvme_tokens_processed / window seconds",
        "What the storage tier moved, in tokens' worth of KV: the drive's own figure.",
        "Read amplification makes it many times the generated tokens; that is the workload, not an error.",
        lambda m: m.per_second(_storage_tokens(m)),
        headline=True,
        better="higher",
        about=(Area.STORAGE,),
        views=(column(26, "NVMe Throughput (tokens/sec)"), trials(3)),
    ),
    Metric(
        "nvme_tokens_processed",
        "tokens",
        "tokens of the entries read and written on the storage tier, demotions included; of an entry that "
        "moved in part, its share",
        "The volume behind nvme_throughput.",
        "Grows with the duration.",
        _storage_tokens,
    ),
)

COUNTS = (
    Metric(
        "elapsed_time",
        "s",
        "length of the measured window: warm-up, preparation and drain are outside",
        "The divisor of every rate.",
        "An interrupted run has a shorter one, and is marked incomplete.",
        lambda m: m.wall_seconds,
    ),
    Metric(
        "total_requests",
        "requests",
        "requests completed in the window (the meaning that readers of kv-cache.py results expect)",
        "The number of values behind the request latencies.",
        "Failed, shed and unfinished requests are not in it: they have their own counts.",
        lambda m: m.recorder.requests.completed,
        better="higher",
        about=(Area.LOAD,),
        views=(column(7, "Total Requests", digits=0),),
    ),
    Metric(
        "requests_completed",
        "requests",
        "requests served without failure whose end lies in the window",
        "Compare with the requests that arrived.",
        "Counts the window only; the whole run's count is in honesty.",
        lambda m: m.recorder.requests.completed,
        better="higher",
        about=(Area.LOAD,),
        views=(headline(10, "Requests completed", digits=0),),
    ),
    Metric(
        "requests_failed",
        "requests",
        "requests that failed in the window; their tokens don't count",
        "Anything but zero needs an explanation before any other figure is read.",
        "A failed request ends early, so latencies of the others may look better.",
        lambda m: m.recorder.requests.failed_count,
    ),
    Metric(
        "requests_unfinished",
        "requests",
        "requests that had arrived and were not done when the run ended",
        "The backlog: a large one says that the system was overloaded.",
        "Some are always in flight at the end of a timed run.",
        lambda m: len(m.facts.unfinished_ages_ns),
    ),
    Metric(
        "requests_shed",
        "requests",
        "arrivals refused because the backlog had reached --max-queue, warm-up included; in a search "
        "those of the stage that is the result",
        "Overload beyond the bound.",
        "No latency figure includes what was shed.",
        lambda m: m.facts.shed,
    ),
    Metric(
        "total_tokens",
        "tokens",
        "generated tokens of requests completed in the window",
        "The numerator of the token rates.",
        "A request's tokens count all at once, when it completes.",
        lambda m: m.recorder.requests.tokens,
        better="higher",
        about=(Area.LOAD,),
        views=(column(6, "Total Tokens", digits=0),),
    ),
    Metric(
        "total_storage_io_time",
        "s",
        "wall time inside cache calls that lies in the window, summed over all requests: failed ones and "
        "those not done at its end included",
        "The divisor of storage_throughput_tokens_per_sec.",
        "A sum over concurrent requests: larger than the window where many wait at once.",
        lambda m: m.storage_io_seconds,
        about=(Area.STORAGE,),
        views=(column(3, "Total I/O Time (s)"),),
    ),
    Metric(
        "total_room_wait_time",
        "s",
        "the part of total_storage_io_time in which writes waited for room in the last tier, because all "
        "that it kept was in use",
        "How much of the cache's time its capacity costs.",
        "A sum over concurrent requests, as total_storage_io_time; with --write-policy back also of writes "
        "that no request waits for.",
        lambda m: m.room_wait_seconds,
        about=(Area.STORAGE,),
    ),
    Metric(
        "total_generation_time",
        "s",
        "sum over completed requests of the time spent generating (simulated compute)",
        "How much of the load was compute.",
        "Zero with --generation-mode none.",
        lambda m: m.recorder.requests.generation_ns / NS_PER_SEC,
    ),
)


EFFICIENCY = (
    Metric(
        "io_time_bandwidth_gib_per_sec",
        "GiB/s",
        "bytes read and written on all tiers / total_storage_io_time",
        "The bandwidth that one waiting request sees.",
        "Divides by summed waiting time: not the device's bandwidth. For that see the tiers' bandwidths.",
        _io_time_bandwidth,
    ),
    Metric(
        "io_time_bandwidth_efficiency",
        "ratio",
        "io_time_bandwidth_gib_per_sec / --device-bandwidth-gbps",
        "To compare with figures that others compute in this way.",
        "As io_time_bandwidth_gib_per_sec.",
        lambda m: ratio(_io_time_bandwidth(m), m.settings.device_bandwidth_gbps),
    ),
    Metric(
        "device_bandwidth_efficiency",
        "ratio",
        "(storage tier's bytes read + written / window seconds) / --device-bandwidth-gbps",
        "How much of the device's theoretical bandwidth the workload drew.",
        "A light load leaves a fast device idle: low is not slow.",
        lambda m: ratio(_tier_bandwidth(m), m.settings.device_bandwidth_gbps),
    ),
    Metric(
        "io_time_per_op_ms",
        "ms",
        "total_storage_io_time / entry operations (reads + writes, demotions included)",
        "A sanity check of latency against volume.",
        "Includes waits for slots and space; entries differ in size.",
        lambda m: _milliseconds(ratio(m.storage_io_seconds, m.ops(Verb.READ) + m.ops(Verb.WRITE))),
    ),
    Metric(
        "io_time_per_gib_ms",
        "ms/GiB",
        "total_storage_io_time / GiB read and written on all tiers",
        "Latency made comparable between models and context sizes.",
        "Includes waits for slots and space.",
        lambda m: _milliseconds(ratio(m.storage_io_seconds * GIB, _all_bytes(m))),
    ),
)
