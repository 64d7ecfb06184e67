"""The window monitor: rows of the present window only, so that no decision rests on a cumulative figure."""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from kvspill.records import NS_PER_SEC, Observer, OpRecord, QoS, RequestRecord, Tier, Verb
from kvspill.run.search.baseline import UnloadedRead
from kvspill.run.search.stage import ClassRows, Rows, StageMeasure, summarise

LatencyOf = Callable[[RequestRecord], int]


def storage_ttft_ns(record: RequestRecord) -> int:
    """Queue wait and what the cache did before the first token."""
    if record.recomputed_tokens is None:
        return record.queue_ns + record.prefill_ns
    return record.storage_ttft_ns


LATENCIES: dict[str, LatencyOf] = {
    "added": attrgetter("added_ns"),
    "end-to-end": attrgetter("end_to_end_ns"),
    "queue-wait": attrgetter("queue_ns"),
    "storage-ttft": storage_ttft_ns,
}
"""The latencies that a target can be set for."""

Waiting = Callable[[int], "tuple[array[int], array[int]]"]
"""Who waits and for how long, at a time."""


def waiting_by(
    latency: str, unfinished: "Callable[[int], tuple[array[int], array[int], array[int]]]"
) -> Waiting:
    """Waits as that latency counts them: what queue and storage add has no generation of the turn before."""

    def waiting(at_ns: int) -> "tuple[array[int], array[int]]":
        classes, ages_ns, added_ns = unfinished(at_ns)
        return classes, added_ns if latency == "added" else ages_ns

    return waiting


def _longs() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class _Requests:
    """Completed requests of one class: when, how long, how many tokens."""

    finished_ns: "array[int]" = field(default_factory=_longs)
    end_to_end_ns: "array[int]" = field(default_factory=_longs)
    added_ns: "array[int]" = field(default_factory=_longs)
    queue_ns: "array[int]" = field(default_factory=_longs)
    chosen_ns: "array[int]" = field(default_factory=_longs)
    tokens: "array[int]" = field(default_factory=_longs)
    failed: int = 0

    def add(self, other: "_Requests", clock_ns: int) -> None:
        self.finished_ns.extend(at_ns - clock_ns for at_ns in other.finished_ns)
        self.end_to_end_ns.extend(other.end_to_end_ns)
        self.added_ns.extend(other.added_ns)
        self.queue_ns.extend(other.queue_ns)
        self.chosen_ns.extend(other.chosen_ns)
        self.tokens.extend(other.tokens)
        self.failed += other.failed


@dataclass(frozen=True, slots=True)
class Taken:
    """What a rank saw of a window, as it travels."""

    times: "tuple[array[int], ...]"
    others: "tuple[array[int], ...]"
    requests: dict[QoS, _Requests]
    sums: tuple[int, int, int, int]


class WindowMonitor(Observer):
    """An Observer whose windows are begun by the controller; what came before is forgotten."""

    waiting: Waiting
    """As the chosen latency counts it; nobody where waits are bounded by closed arrivals."""

    def __init__(self, unloaded: UnloadedRead | None, latency: str = "added"):
        self._unloaded = unloaded
        self._latency_of = LATENCIES[latency]
        self.waiting = lambda _at_ns: (array("b"), array("q"))
        self.begin(0)

    def begin(self, at_ns: int) -> None:
        """Forget everything; a new window starts now."""
        self.started_ns = at_ns
        self._waiting_before = len(self.waiting(at_ns)[0])
        self._clear()

    def take(self) -> "Taken":
        """What was seen in this window since the last time, for the rank that decides."""
        times = (self._read_finished_ns, self._moved_finished_ns)
        others = (self._read_ns, self._read_bytes, self._moved_bytes, self._moved_tokens)
        sums = (self._served, self._thought_ns, self._served_ns, self._stayed_ns)
        taken = Taken(times, others, self._requests, sums)
        self._clear()
        return taken

    def add(self, taken: "Taken", clock_ns: int) -> None:
        """Count what another rank saw; its clock shows so much more than ours."""
        times = (self._read_finished_ns, self._moved_finished_ns)
        for mine, theirs in zip(times, taken.times, strict=True):
            mine.extend(at_ns - clock_ns for at_ns in theirs)
        others = (self._read_ns, self._read_bytes, self._moved_bytes, self._moved_tokens)
        for mine, theirs in zip(others, taken.others, strict=True):
            mine.extend(theirs)
        for qos, requests in taken.requests.items():
            self._requests[qos].add(requests, clock_ns)
        served, thought_ns, served_ns, stayed_ns = taken.sums
        self._served += served
        self._thought_ns += thought_ns
        self._served_ns += served_ns
        self._stayed_ns += stayed_ns

    def _clear(self) -> None:
        self._read_finished_ns = _longs()
        self._read_ns = _longs()
        self._read_bytes = _longs()
        self._moved_finished_ns = _longs()
        self._moved_bytes = _longs()
        self._moved_tokens = _longs()
        self._requests = {qos: _Requests() for qos in QoS}
        self._served = 0
        self._thought_ns = 0
        self._served_ns = 0
        self._stayed_ns = 0

    def op(self, record: OpRecord) -> None:
        completion = record.completion
        if record.tier is not Tier.STORAGE or completion.error is not None or record.verb is Verb.DELETE:
            return
        count = record.times
        self._moved_finished_ns.extend([completion.finished_ns] * count)
        self._moved_bytes.extend([record.nbytes] * count)
        self._moved_tokens.extend([record.tokens] * count)
        if record.verb is Verb.READ:
            self._read_finished_ns.extend([completion.finished_ns] * count)
            self._read_ns.extend([completion.total_ns] * count)
            self._read_bytes.extend([record.nbytes] * count)

    def request(self, record: RequestRecord) -> None:
        rows = self._requests[record.request.qos]
        self._served += 1
        self._thought_ns += record.request.think_ns
        self._served_ns += record.finished_ns - record.started_ns
        self._stayed_ns += record.end_to_end_ns
        if record.failure is not None:
            rows.failed += 1
            return
        rows.finished_ns.append(record.finished_ns)
        rows.end_to_end_ns.append(record.end_to_end_ns)
        rows.added_ns.append(record.added_ns)
        rows.queue_ns.append(record.queue_ns)
        rows.chosen_ns.append(self._latency_of(record))
        rows.tokens.append(record.generated_tokens)

    def mean_round_ns(self, with_wait: bool) -> float | None:
        """Mean time of a user's round: its pause and the stay of its request, the wait included or not."""
        if not self._served:
            return None
        return (self._thought_ns + (self._stayed_ns if with_wait else self._served_ns)) / self._served

    def measure(self, end_ns: int, batches: int) -> StageMeasure:
        """The window from its beginning to end_ns, cut into batches of equal length."""
        window_ns = max(1, end_ns - self.started_ns)

        def batch_of(finished_ns: Iterable[int]) -> NDArray[np.int64]:
            since_ns = np.array(finished_ns, dtype=np.int64) - self.started_ns
            return np.clip(since_ns * batches // window_ns, 0, batches - 1)

        classes, ages_ns = self.waiting(end_ns)
        owners, waits_ns = np.array(classes, dtype=np.int8), np.array(ages_ns, dtype=np.int64)
        read_bytes = np.array(self._read_bytes, dtype=np.int64)
        unloaded = self._unloaded
        rows = Rows(
            seconds=window_ns / NS_PER_SEC,
            batches=batches,
            read_batch=batch_of(self._read_finished_ns),
            read_ns=np.array(self._read_ns, dtype=np.int64),
            unloaded_ns=None
            if unloaded is None
            else unloaded.latency_ns + unloaded.ns_per_byte * read_bytes.astype(np.float64),
            moved_batch=batch_of(self._moved_finished_ns),
            moved_bytes=np.array(self._moved_bytes, dtype=np.int64),
            moved_tokens=np.array(self._moved_tokens, dtype=np.int64),
            classes={
                qos: ClassRows(
                    batch=batch_of(found.finished_ns),
                    end_to_end_ns=np.array(found.end_to_end_ns, dtype=np.int64),
                    added_ns=np.array(found.added_ns, dtype=np.int64),
                    queue_ns=np.array(found.queue_ns, dtype=np.int64),
                    chosen_ns=np.array(found.chosen_ns, dtype=np.int64),
                    tokens=np.array(found.tokens, dtype=np.int64),
                    failed=found.failed,
                    waiting_ns=waits_ns[owners == qos],
                )
                for qos, found in self._requests.items()
            },
            backlog_growth=len(ages_ns) - self._waiting_before,
        )
        return summarise(rows)
