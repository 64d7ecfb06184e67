"""What one window of a stage says: throughput, latencies and saturation, each with its interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvspill.measure.statistics import Interval, mean_interval, percentile, student_quantile, wilson_interval
from kvspill.records import GIB, NS_PER_MS, QoS

Longs = NDArray[np.int64]

MIN_READS = 40
"""Storage reads below which a p95 says nothing."""

MIN_GROWTH, GROWTH_SHARE = 10, 0.05
"""A backlog that grows by this many requests and by this share of the arrivals will not come down again."""


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Completed requests of one service class in the window, row by row."""

    batch: Longs
    end_to_end_ns: Longs
    added_ns: Longs
    """What queue and storage added: what service classes are judged by (S11)."""
    queue_ns: Longs
    chosen_ns: Longs
    tokens: Longs
    failed: int
    waiting_ns: Longs
    """How long those have waited that had no answer yet when the window ended (L3), as the chosen latency
    counts it at least."""


COLUMNS = ("end_to_end_ns", "added_ns", "queue_ns", "chosen_ns", "tokens")
"""What is kept of each completed request beside its batch."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A window's rows and how it is cut into batches."""

    seconds: float
    batches: int
    read_batch: Longs
    read_ns: Longs
    unloaded_ns: NDArray[np.float64] | None
    """What each of these reads would have taken on the idle device."""
    moved_batch: Longs
    moved_bytes: Longs
    moved_tokens: Longs
    classes: Mapping[QoS, ClassRows]
    backlog_growth: int = 0
    """Requests that more waited at the end of the window than at its beginning (open arrivals)."""
    own_late_ms: float = 0.0
    """How late kvspill itself saw requests come (p99)."""


@dataclass(frozen=True, slots=True)
class StageMeasure:
    """One window. Rates are per second with a 95 % interval by batch means."""

    rows: Rows
    requests: int
    failed: int
    generated: Interval
    """Tokens generated per second."""
    stored: Interval
    """KV tokens read and written on the storage tier per second."""
    reads: int
    read_p95_ms: float | None
    unloaded_p95_ms: float | None
    saturation: Interval | None
    """None where too few reads reached the storage tier to say."""

    @property
    def seconds(self) -> float:
        return self.rows.seconds

    @property
    def storage_gib_per_sec(self) -> float:
        return float(self.rows.moved_bytes.sum()) / self.rows.seconds / GIB

    @property
    def overloaded(self) -> bool:
        """The backlog grows: however short the waits still are, they have no limit."""
        growth = self.rows.backlog_growth
        return growth >= MIN_GROWTH and growth > GROWTH_SHARE * (growth + self.requests)

    def latency_ms(self) -> dict[str, dict[str, float]]:
        """Percentiles of all completed requests, by part."""
        classes = self.rows.classes.values()
        return {
            "end_to_end": percentiles_ms(np.concatenate([rows.end_to_end_ns for rows in classes])),
            "queue_wait": percentiles_ms(np.concatenate([rows.queue_ns for rows in classes])),
        }

    def to_dict(self) -> dict[str, Any]:
        """The figures of a step in autoscaling_stats."""
        return {
            "saturation": None if self.saturation is None else round(self.saturation.mean, 4),
            "saturation_ci95": None if self.saturation is None else _ends(self.saturation, 4),
            "read_p95_ms": self.read_p95_ms,
            "unloaded_read_p95_ms": self.unloaded_p95_ms,
            "storage_reads": self.reads,
            "throughput": self.generated.mean,
            "throughput_ci95": _ends(self.generated, 3),
            "storage_throughput": self.stored.mean,
            "storage_throughput_ci95": _ends(self.stored, 3),
            "storage_gib_per_sec": self.storage_gib_per_sec,
            "latency_ms": self.latency_ms(),
            "requests": self.requests,
            "failed_requests": self.failed,
            "measured_seconds": round(self.seconds, 6),
        }


def _ends(interval: Interval, digits: int) -> list[float]:
    return [round(interval.low, digits), round(interval.high, digits)]


def percentiles_ms(values_ns: Longs) -> dict[str, float]:
    """p50, p95, p99 and the mean in milliseconds; empty where nothing completed."""
    if not len(values_ns):
        return {}
    return {
        "mean": float(values_ns.mean()) / NS_PER_MS,
        **{f"p{rank}": percentile(values_ns, rank) / NS_PER_MS for rank in (50, 95, 99)},
    }


def rate_interval(amounts: Longs, batch: Longs, rows: Rows) -> Interval:
    """The rate per second of amounts, by the means of the batches."""
    sums = np.bincount(batch, weights=amounts, minlength=rows.batches)
    rates = [float(total) * rows.batches / rows.seconds for total in sums]
    interval = mean_interval(rates)
    return interval if interval is not None else Interval(rates[0], 0.0, float("inf"))


def summarise(rows: Rows) -> StageMeasure:
    """Everything a mode may decide by."""
    classes = list(rows.classes.values())
    tokens = np.concatenate([found.tokens for found in classes])
    batches = np.concatenate([found.batch for found in classes])
    enough = len(rows.read_ns) >= MIN_READS
    unloaded = rows.unloaded_ns
    return StageMeasure(
        rows=rows,
        requests=len(tokens),
        failed=sum(found.failed for found in classes),
        generated=rate_interval(tokens, batches, rows),
        stored=rate_interval(rows.moved_tokens, rows.moved_batch, rows),
        reads=len(rows.read_ns),
        read_p95_ms=percentile(rows.read_ns, 95) / NS_PER_MS if enough else None,
        unloaded_p95_ms=percentile(unloaded, 95) / NS_PER_MS if enough and unloaded is not None else None,
        saturation=_saturation_interval(rows) if enough and unloaded is not None else None,
    )


def pooled(measures: Sequence[StageMeasure]) -> StageMeasure:
    """Several windows of a level as one: their rows side by side, their batches one after the other."""
    if len(measures) == 1:
        return measures[0]
    parts = [measure.rows for measure in measures]
    offsets = np.cumsum([0, *(part.batches for part in parts)])

    def joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(arrays)

    def batched(arrays: Sequence[Longs]) -> Longs:
        return joined([array + offset for array, offset in zip(arrays, offsets[:-1], strict=True)])

    unloaded = [part.unloaded_ns for part in parts if part.unloaded_ns is not None]
    classes = {}
    for qos in QoS:
        found = [part.classes[qos] for part in parts]
        classes[qos] = ClassRows(
            batch=batched([rows.batch for rows in found]),
            **{name: joined([getattr(rows, name) for rows in found]) for name in COLUMNS},
            failed=sum(rows.failed for rows in found),
            waiting_ns=found[-1].waiting_ns,
        )
    return summarise(
        Rows(
            seconds=sum(part.seconds for part in parts),
            batches=int(offsets[-1]),
            read_batch=batched([part.read_batch for part in parts]),
            read_ns=joined([part.read_ns for part in parts]),
            unloaded_ns=joined(unloaded) if len(unloaded) == len(parts) else None,
            moved_batch=batched([part.moved_batch for part in parts]),
            moved_bytes=joined([part.moved_bytes for part in parts]),
            moved_tokens=joined([part.moved_tokens for part in parts]),
            classes=classes,
            backlog_growth=sum(part.backlog_growth for part in parts),
            own_late_ms=max(part.own_late_ms for part in parts),
        )
    )


def saturation(read_ns: NDArray[Any], unloaded_ns: NDArray[Any]) -> float:
    """1 - p95 on the idle device / p95 now: 0.0 idle, 0.5 twice as slow, towards 1.0 without end.

    Both percentiles are of the same reads, so that a changing mix of sizes changes nothing. On a device
    that shares its time evenly this is its utilisation.
    """
    now_ns, idle_ns = percentile(read_ns, 95), percentile(unloaded_ns, 95)
    return min(1.0, max(0.0, 1.0 - idle_ns / now_ns)) if now_ns > 0 else 0.0


def _saturation_interval(rows: Rows) -> Interval:
    """The whole window's saturation; its interval comes from the spread between the batches."""
    assert rows.unloaded_ns is not None
    whole = saturation(rows.read_ns, rows.unloaded_ns)
    parts = []
    for number in range(rows.batches):
        chosen = rows.read_batch == number
        if chosen.sum() >= MIN_READS / 4:
            parts.append(saturation(rows.read_ns[chosen], rows.unloaded_ns[chosen]))
    half = half_width(parts)
    return Interval(whole, max(0.0, whole - half), min(1.0, whole + half))


def half_width(parts: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean; without a spread to judge by, anything is possible."""
    interval = mean_interval(parts)
    return 1.0 if interval is None else interval.high - interval.mean


def share_interval(late: Longs, batch: Longs, batches: int) -> tuple[float, float]:
    """The 95 % interval of a share of late rows (1 late, 0 not).

    Wilson's, which takes rows for independent, or the one from the spread between batches, which sees that
    lateness comes in bouts: whichever is wider.
    """
    total = len(late)
    if total == 0:
        return 0.0, 1.0
    share = float(late.mean())
    low, high = wilson_interval(int(late.sum()), total)
    counts = np.bincount(batch, minlength=batches)
    lates = np.bincount(batch, weights=late, minlength=batches)
    spread = math.sqrt(batches / (batches - 1) * float(((lates - share * counts) ** 2).sum())) / total
    bout = student_quantile(0.975, batches - 1) * spread
    return max(0.0, min(low, share - bout)), min(1.0, max(high, share + bout))
