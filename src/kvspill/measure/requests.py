"""What is counted of requests: completions, tokens, failures and where their time went (S1)."""

from collections import Counter
from dataclasses import dataclass, field

from kvspill.measure.histograms import Histogram
from kvspill.records import HitType, QoS, RequestRecord

PARTS = (
    *("end_to_end", "queue", "storage", "generation", "other", "prefill", "decode"),
    *("ttft", "tpot", "added"),
)
SAMPLE_ROWS = 1000


@dataclass(slots=True)
class RequestTally:
    """Requests that ended inside the window."""

    completed: int = 0
    tokens: int = 0
    context_tokens: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    generation_ns: int = 0
    other_ns: int = 0
    prefixes: Counter[HitType] = field(default_factory=Counter)
    """Requests that began with a known shared prompt, found in the cache or not."""
    parts: dict[str, Histogram] = field(default_factory=lambda: {part: Histogram() for part in PARTS})
    by_qos: dict[QoS, Histogram] = field(default_factory=lambda: {qos: Histogram() for qos in QoS})
    """End-to-end latency per service class."""
    added_by_qos: dict[QoS, Histogram] = field(default_factory=lambda: {qos: Histogram() for qos in QoS})
    """What queue and storage add, per service class (S11)."""
    queue_by_qos: dict[QoS, Histogram] = field(default_factory=lambda: {qos: Histogram() for qos in QoS})
    failed_by_qos: Counter[QoS] = field(default_factory=Counter)
    sample: "Sample" = field(default_factory=lambda: Sample(SAMPLE_ROWS))

    def add(self, record: RequestRecord) -> None:
        if record.failure is not None:
            self.failed[record.failure] += 1
            self.failed_by_qos[record.request.qos] += 1
            return
        request = record.request
        self.completed += 1
        self.tokens += record.generated_tokens
        self.context_tokens += request.context_tokens
        self.generation_ns += record.generation_ns
        self.other_ns += record.other_ns
        if request.prefix is not None:
            self.prefixes[request.prefix.hit_type] += 1
        self._add_times(record)

    def _add_times(self, record: RequestRecord) -> None:
        end_to_end_ns, queue_ns = record.end_to_end_ns, record.queue_ns
        parts = self.parts
        parts["end_to_end"].record(end_to_end_ns)
        parts["queue"].record(queue_ns)
        parts["storage"].record(record.storage_ns)
        parts["generation"].record(record.generation_ns)
        parts["other"].record(record.other_ns)
        parts["prefill"].record(record.prefill_ns)
        parts["decode"].record(record.decode_ns)
        parts["added"].record(record.added_ns)
        if record.ttft_ns is not None:
            parts["ttft"].record(record.ttft_ns)
        if record.tpot_ns is not None:
            parts["tpot"].record(record.tpot_ns)
        self.by_qos[record.request.qos].record(end_to_end_ns)
        self.added_by_qos[record.request.qos].record(record.added_ns)
        self.queue_by_qos[record.request.qos].record(queue_ns)
        self.sample.add(
            (end_to_end_ns, record.storage_ns, record.generation_ns, record.prefill_ns, record.decode_ns)
        )

    def merge(self, other: "RequestTally") -> None:
        """Add the requests of another part of the load."""
        self.completed += other.completed
        self.tokens += other.tokens
        self.context_tokens += other.context_tokens
        self.failed.update(other.failed)
        self.generation_ns += other.generation_ns
        self.other_ns += other.other_ns
        self.prefixes.update(other.prefixes)
        for part, histogram in self.parts.items():
            histogram.merge(other.parts[part])
        for qos in QoS:
            self.by_qos[qos].merge(other.by_qos[qos])
            self.added_by_qos[qos].merge(other.added_by_qos[qos])
            self.queue_by_qos[qos].merge(other.queue_by_qos[qos])
        self.failed_by_qos.update(other.failed_by_qos)
        self.sample.merge(other.sample)

    @property
    def failed_count(self) -> int:
        return sum(self.failed.values())


class Sample:
    """Every n-th row, n doubling whenever the sample is full: even over the run, repeatable, bounded."""

    def __init__(self, limit: int):
        self._limit = limit
        self._stride = 1
        self._seen = 0
        self.rows: list[tuple[int, ...]] = []

    def add(self, row: tuple[int, ...]) -> None:
        if self._seen % self._stride == 0:
            if len(self.rows) >= self._limit:
                self._thin()
            if self._seen % self._stride == 0:
                self.rows.append(row)
        self._seen += 1

    def merge(self, other: "Sample") -> None:
        """Add another's rows, each for as many as one of these: who saw twice as much has twice the share."""
        while self._stride < other._stride:
            self._thin()
        theirs = other.rows[:: self._stride // other._stride]
        self.rows = [*self.rows, *theirs]
        self._seen += other._seen
        while len(self.rows) > self._limit:
            self._thin()

    def _thin(self) -> None:
        self.rows = self.rows[::2]
        self._stride *= 2
