"""Metrics of a request's time: how long it took, and where that time went (S1, S3, S12)."""

from kvspill.measure.histograms import Histogram, merged
from kvspill.result.measured import Measured
from kvspill.result.metrics.metric import Area, Better, Metric, Place, Value, View, column, headline


def _queue_wait(m: Measured) -> Value:
    ages = Histogram()
    ages.record_all(m.facts.unfinished_ages_ns)
    return merged((m.recorder.requests.parts["queue"], ages)).statistics_ms()


def _latency(
    name: str, part: str, formula: str, use: str, misleads: str, better: Better = "neither", *views: View
) -> Metric:
    return Metric(
        name,
        "ms",
        formula,
        use,
        misleads,
        lambda m: m.request_ms(part),
        better=better,
        about=(Area.LATENCY, Area.STORAGE) if part == "storage" else (Area.LATENCY,),
        views=views,
    )


def _columns(order: int, title: str) -> tuple[View, ...]:
    """Four columns of a latency, under the titles that analyses look for."""
    stats = {"mean": "Mean", "p50": "P50", "p95": "P95", "p99": "P99"}
    return tuple(
        column(order + place, f"{title} {label} (ms)", stat=stat)
        for place, (stat, label) in enumerate(stats.items())
    )


def _console(order: int, title: str) -> View:
    return View(Place.LATENCY, order, title)


LATENCIES = (
    _latency(
        "end_to_end_latency_ms",
        "end_to_end",
        "queue wait + storage I/O + generation + other, from the intended time to the end, per request",
        "What the user feels.",
        "Under overload it grows with the duration and describes the backlog, not the device.",
        "lower",
        *_columns(8, "E2E Latency"),
        headline(6, "End-to-end latency, p95", stat="p95"),
        _console(1, "End-to-end"),
    ),
    Metric(
        "queue_wait_ms",
        "ms",
        "intended time to first service, the wait for the turn before included; requests that never "
        "finished enter with their age at the end, as a lower bound",
        "Overload: if it dominates, requests arrive faster than they are served.",
        "With unfinished requests every statistic is a lower bound.",
        _queue_wait,
    ),
    _latency(
        "queue_wait_completed_ms",
        "queue",
        "the same for completed requests only, so that the four parts add up to end-to-end",
        "The breakdown of completed requests.",
        "Under overload only short waits complete.",
        "lower",
        _console(2, "= Queue wait"),
    ),
    _latency(
        "storage_io_latency_ms",
        "storage",
        "wall time inside cache calls per request (the union where they overlap): allocation slots, space, "
        "demotions and the backend's queue included",
        "The whole storage path as one request sees it.",
        "Not the device's own time: for that see storage_read_device_p95_ms.",
        "lower",
        *_columns(16, "Storage Latency"),
        headline(7, "Cache I/O per request, p95", stat="p95"),
        _console(3, "+ Cache I/O"),
    ),
    _latency(
        "generation_latency_ms",
        "generation",
        "tokens to generate x the mode's time per token + context tokens to compute x --prefill-us-per-token",
        "The compute that paces the I/O.",
        "Simulated compute, whatever the machine.",
        "neither",
        *_columns(12, "Gen Latency"),
        _console(4, "+ Generation"),
    ),
    _latency(
        "other_ms",
        "other",
        "end-to-end - queue wait - storage I/O - generation",
        "Overhead of the program: should be close to zero.",
        "Where it is large, the client is the bottleneck.",
        "lower",
        _console(5, "+ Other"),
    ),
    _latency(
        "ttft_ms",
        "ttft",
        "time to the first token: queue wait, the reads of prompt, history, documents and blocks, prefill or "
        "recompute, the write of the entry where the request waits for it, and the first decode read; of "
        "requests that generate",
        "What a user waits for before the answer begins.",
        "Under overload it is dominated by the queue. Prefill takes no time without --prefill-us-per-token.",
        "lower",
        _console(6, "TTFT"),
        headline(11, "TTFT, p95", stat="p95"),
    ),
    _latency(
        "tpot_ms",
        "tpot",
        "time per output token: (decode reads + generation after the first token's prefill) / generated "
        "tokens, per request",
        "Speed of the answer after its first token.",
        "Mostly the generation mode's time per token: look at what is above that.",
        "lower",
        _console(7, "TPOT"),
        headline(12, "TPOT, p95", stat="p95"),
    ),
    _latency(
        "added_latency_ms",
        "added",
        "end-to-end without generation, the request's own and that of the turn before it while it waited: "
        "what queue and storage add",
        "What service classes are judged by: no drive can give back the GPU's own time.",
        "Under overload it is dominated by the queue.",
        "lower",
        _console(8, "Queue + storage"),
    ),
    _latency(
        "prefill_latency_ms",
        "prefill",
        "time in cache calls for prompt, history and the write of this turn's entry, per request",
        "The write side of a request.",
        "Zero where a request wrote nothing.",
    ),
    _latency(
        "decode_latency_ms",
        "decode",
        "time in cache calls of the decode reads, per request",
        "The read side of a request.",
        "Zero where a request only prefills.",
    ),
)
