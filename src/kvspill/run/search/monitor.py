"""The window monitor: rows of the present window only, so that no decision rests on a cumulative figure."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter

import numpy as np

from kvspill.measure.statistics import percentile
from kvspill.records import NS_PER_MS, NS_PER_SEC, Observer, OpRecord, QoS, RequestRecord, Tier, Verb
from kvspill.run.search.baseline import UnloadedRead
from kvspill.run.search.stage import COLUMNS, ClassRows, Longs, Rows, StageMeasure, summarise
from kvspill.serving.population import Lateness

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
WHOLE_STAY = ("added", "end-to-end")
"""The latencies that go on while a request is served."""


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


@dataclass(slots=True)
class Taken:
    """What a rank saw of a window, as it travels."""

    read_finished_ns: "array[int]" = field(default_factory=_longs)
    read_ns: "array[int]" = field(default_factory=_longs)
    read_bytes: "array[int]" = field(default_factory=_longs)
    moved_finished_ns: "array[int]" = field(default_factory=_longs)
    moved_bytes: "array[int]" = field(default_factory=_longs)
    moved_tokens: "array[int]" = field(default_factory=_longs)
    own_late_ns: "array[int]" = field(default_factory=_longs)
    requests: dict[QoS, _Requests] = field(default_factory=lambda: {qos: _Requests() for qos in QoS})
    served: int = 0
    thought_ns: int = 0
    served_ns: int = 0
    stayed_ns: int = 0


def _add(mine: Taken | _Requests, theirs: Taken | _Requests, clock_ns: int) -> None:
    """The same rows and sums of another rank beside one's own."""
    for name in (item.name for item in fields(mine)):
        own, seen = getattr(mine, name), getattr(theirs, name)
        if isinstance(seen, int):
            setattr(mine, name, own + seen)
        elif isinstance(seen, dict):
            for qos, requests in seen.items():
                _add(own[qos], requests, clock_ns)
        else:
            own.extend((at_ns - clock_ns for at_ns in seen) if name.endswith("finished_ns") else seen)


def _array(values: "array[int]") -> Longs:
    return np.array(values, dtype=np.int64)


class WindowMonitor(Observer):
    """An Observer whose windows are begun by the controller; what came before is forgotten."""

    waiting: Waiting
    """As the chosen latency counts it."""
    own_lateness: Lateness
    """How late kvspill itself saw each request come, since the load began."""

    def __init__(self, unloaded: UnloadedRead | None, latency: str = "added", *, closed: bool = False):
        """Closed: nobody comes while somebody waits, so that no backlog can grow."""
        self._unloaded = unloaded
        self._closed = closed
        self._latency_of = LATENCIES[latency]
        self.waiting = lambda _at_ns: (array("b"), array("q"))
        self.own_lateness = Lateness()
        self.begin(0)

    def begin(self, at_ns: int) -> None:
        """Forget everything; a new window starts now."""
        self.started_ns = at_ns
        self._waiting_before = len(self.waiting(at_ns)[0])
        self._seen = Taken()
        self._noted = self.own_lateness.count

    def _note_lateness(self) -> None:
        self._seen.own_late_ns.extend(self.own_lateness.since(self._noted))
        self._noted = self.own_lateness.count

    def take(self) -> Taken:
        """What was seen in this window since the last time, for the rank that decides."""
        self._note_lateness()
        taken, self._seen = self._seen, Taken()
        return taken

    def add(self, taken: Taken, clock_ns: int) -> None:
        """Count what another rank saw; its clock shows so much more than ours."""
        _add(self._seen, taken, clock_ns)

    def op(self, record: OpRecord) -> None:
        completion = record.completion
        if record.tier is not Tier.STORAGE or completion.error is not None or record.verb is Verb.DELETE:
            return
        seen, count = self._seen, record.times
        seen.moved_finished_ns.extend([completion.finished_ns] * count)
        seen.moved_bytes.extend([record.nbytes] * count)
        seen.moved_tokens.extend([record.tokens] * count)
        if record.verb is Verb.READ:
            seen.read_finished_ns.extend([completion.finished_ns] * count)
            seen.read_ns.extend([completion.total_ns] * count)
            seen.read_bytes.extend([record.nbytes] * count)

    def request(self, record: RequestRecord) -> None:
        seen = self._seen
        rows = seen.requests[record.request.qos]
        seen.served += 1
        seen.thought_ns += record.request.think_ns
        seen.served_ns += record.finished_ns - record.started_ns
        seen.stayed_ns += record.end_to_end_ns
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
        seen = self._seen
        if not seen.served:
            return None
        return (seen.thought_ns + (seen.stayed_ns if with_wait else seen.served_ns)) / seen.served

    def measure(self, end_ns: int, batches: int) -> StageMeasure:
        """The window from its beginning to end_ns, cut into batches of equal length."""
        self._note_lateness()
        seen, window_ns = self._seen, max(1, end_ns - self.started_ns)

        def batch_of(finished_ns: "array[int]") -> Longs:
            since_ns = _array(finished_ns) - self.started_ns
            return np.clip(since_ns * batches // window_ns, 0, batches - 1)

        classes, ages_ns = self.waiting(end_ns)
        owners, waits_ns = np.array(classes, dtype=np.int8), _array(ages_ns)
        unloaded = self._unloaded
        rows = Rows(
            seconds=window_ns / NS_PER_SEC,
            batches=batches,
            read_batch=batch_of(seen.read_finished_ns),
            read_ns=_array(seen.read_ns),
            unloaded_ns=None if unloaded is None else unloaded.durations_ns(_array(seen.read_bytes)),
            moved_batch=batch_of(seen.moved_finished_ns),
            moved_bytes=_array(seen.moved_bytes),
            moved_tokens=_array(seen.moved_tokens),
            classes={
                qos: ClassRows(
                    batch=batch_of(found.finished_ns),
                    **{name: _array(getattr(found, name)) for name in COLUMNS},
                    failed=found.failed,
                    waiting_ns=waits_ns[owners == qos],
                )
                for qos, found in seen.requests.items()
            },
            backlog_growth=0 if self._closed else len(ages_ns) - self._waiting_before,
            own_late_ms=percentile(seen.own_late_ns, 99) / NS_PER_MS if seen.own_late_ns else 0.0,
        )
        return summarise(rows)
