"""What is counted for one tier and one verb: operations, bytes, latencies, pieces and errors."""

from collections import Counter
from dataclasses import dataclass, field

from kvspill.measure.histograms import Histogram
from kvspill.records import Completion, Purpose, Tier, Verb

COMPONENTS = ("total", "device", "host", "queue")


@dataclass(slots=True)
class Latencies:
    """One histogram per component of an operation's time (S2)."""

    total: Histogram = field(default_factory=Histogram)
    device: Histogram = field(default_factory=Histogram)
    host: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=Histogram)

    def record(self, completion: Completion) -> None:
        total_ns = completion.finished_ns - completion.submitted_ns
        device_ns = completion.device_ns
        self.total.record(total_ns)
        self.device.record(device_ns)
        self.host.record(total_ns - device_ns if total_ns > device_ns else 0)
        self.queue.record(completion.started_ns - completion.submitted_ns)

    def component(self, name: str) -> Histogram:
        histogram: Histogram = getattr(self, name)
        return histogram


@dataclass(slots=True)
class Lane:
    """Everything about one tier x verb inside the window. Demotions are in all of it, and also apart (C6)."""

    tier: Tier
    verb: Verb
    column: str = ""
    ops: Counter[Purpose] = field(default_factory=Counter)
    nbytes: Counter[Purpose] = field(default_factory=Counter)
    """Logical bytes (C7) that moved inside the window (S4)."""
    moved_bytes: int = 0
    """Bytes as the device saw them, padding included, of operations that succeeded."""
    failed_moved_bytes: int = 0
    """Bytes that pieces of failed operations moved: device traffic, never a score."""
    errors: Counter[str] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)
    demotion_latencies: Latencies = field(default_factory=Latencies)
    pieces: Histogram = field(default_factory=Histogram)

    def __post_init__(self) -> None:
        self.column = f"{self.tier.value}_{self.verb.value}_bytes"

    @property
    def op_count(self) -> int:
        return sum(self.ops.values())

    @property
    def byte_count(self) -> int:
        return sum(self.nbytes.values())

    @property
    def error_count(self) -> int:
        return sum(self.errors.values())

    def complete(self, purpose: Purpose, completion: Completion) -> None:
        """One operation succeeded inside the window."""
        self.ops[purpose] += 1
        self.latencies.record(completion)
        if purpose is Purpose.DEMOTION:
            self.demotion_latencies.record(completion)
