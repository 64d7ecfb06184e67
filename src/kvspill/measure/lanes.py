"""What is counted for one tier and one verb: operations, bytes, latencies, pieces and errors."""

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvspill.measure.heatmap import LatencyMap, Longs
from kvspill.measure.histograms import Histogram
from kvspill.records import Completion, Purpose, Tier, Verb

COMPONENTS = ("total", "device", "host", "queue")
_PENDING_VALUES = 6 << 13
_CLASSES_PER_OCTAVE = 4


class Latencies:
    """One histogram per component of an operation's time: total = device + queue + host (S2).

    Only storage has I/O lanes to wait for, as many as were asked for. In memory the wait is for a thread of
    ours, which is host time (E11).

    Times wait in one array, each with its count, and are divided into their components in bulk; a map that
    is given gets the totals, each when it ended.
    """

    __slots__ = ("_by_size", "_histograms", "_lanes", "_map", "_pending")

    def __init__(self, lanes: bool = True, over_time: LatencyMap | None = None) -> None:
        self._lanes = lanes
        self._map = over_time
        self._histograms = {name: Histogram() for name in COMPONENTS}
        self._by_size: dict[int, tuple[int, int, int]] = {}
        self._pending = array("q")

    def record(
        self,
        submitted_ns: int,
        started_ns: int,
        finished_ns: int,
        device_ns: int,
        count: int = 1,
        nbytes: int = 0,
    ) -> None:
        """So many operations; of a size where they were whole."""
        pending = self._pending
        pending.extend((submitted_ns, started_ns, finished_ns, device_ns, count, nbytes))
        if len(pending) >= _PENDING_VALUES:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        times = np.array(self._pending, dtype=np.int64).reshape(-1, 6)
        self._pending = array("q")
        submitted_ns, started_ns, finished_ns, device_ns, counts, nbytes = times.T
        total_ns = finished_ns - submitted_ns
        queue_ns = started_ns - submitted_ns if self._lanes else np.zeros_like(total_ns)
        values = {
            "total": total_ns,
            "device": device_ns,
            "host": np.maximum(total_ns - device_ns - queue_ns, 0),
            "queue": queue_ns,
        }
        for name, histogram in self._histograms.items():
            histogram.record_array(np.repeat(values[name], counts))
        if self._map is not None:
            self._map.add(finished_ns, total_ns, counts)
        self._add_sizes(nbytes, counts, total_ns - queue_ns)

    def _add_sizes(self, nbytes: Longs, counts: Longs, served_ns: Longs) -> None:
        sized = nbytes > 0
        nbytes, counts, served_ns = nbytes[sized], counts[sized], served_ns[sized]
        classes = np.floor(_CLASSES_PER_OCTAVE * np.log2(nbytes)).astype(np.int64)
        # np.unique would import numpy.ma (36 ms) amid a load.
        for size_class in sorted(set(classes.tolist())):
            same = classes == size_class
            columns = (counts, counts * nbytes, counts * served_ns)
            self._add_class(size_class, *(int(column[same].sum()) for column in columns))

    def _add_class(self, size_class: int, count: int, nbytes: int, served_ns: int) -> None:
        earlier = self._by_size.get(size_class, (0, 0, 0))
        self._by_size[size_class] = (earlier[0] + count, earlier[1] + nbytes, earlier[2] + served_ns)

    def by_size(self) -> dict[int, tuple[int, int, int]]:
        """Whole operations by class of size: how many, their bytes, and their time after the wait for a lane.

        Sizes in a class differ by less than a fifth.
        """
        self._flush()
        return self._by_size

    def over_time(self) -> dict[str, Any] | None:
        """The totals by the time they ended, where they are kept so and there are any."""
        self._flush()
        return None if self._map is None else self._map.to_dict()

    def merge(self, other: "Latencies") -> None:
        for name in COMPONENTS:
            self.component(name).merge(other.component(name))
        for size_class, sums in other.by_size().items():
            self._add_class(size_class, *sums)
        if self._map is not None and other._map is not None:
            self._map.merge(other._map)

    def spread(self) -> tuple[Longs, int] | None:
        """The totals by latency band and their sum, where they are kept over time."""
        self._flush()
        return None if self._map is None else self._map.totals()

    def component(self, name: str) -> Histogram:
        self._flush()
        return self._histograms[name]

    @property
    def total(self) -> Histogram:
        return self.component("total")


@dataclass(slots=True)
class Lane:
    """Everything about one tier x verb inside the window. Demotions are in all of it, and also apart (C6)."""

    tier: Tier
    verb: Verb
    over_time: LatencyMap | None = None
    """Where latencies are also kept by the time they ended."""
    column: str = ""
    ops_column: str = ""
    ops: Counter[Purpose] = field(default_factory=Counter)
    nbytes: Counter[Purpose] = field(default_factory=Counter)
    """Logical bytes (C7) that moved inside the window (S4)."""
    bytes_by_entry: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The same bytes by the tokens and the size of the entries that they are part of."""
    moved_bytes: int = 0
    """Bytes as the device saw them, padding included, of operations that succeeded."""
    failed_moved_bytes: int = 0
    """Bytes that pieces of failed operations moved: device traffic, never a score."""
    errors: Counter[str] = field(default_factory=Counter)
    inside_ns: int = 0
    """Time that operations were under way inside the window, all of them added up."""
    in_flight_at_end: int = 0
    """Operations that the end of the window found under way: in the latencies with their age then (S16)."""
    in_flight_oldest_ns: int = 0
    latencies: Latencies = field(init=False)
    demotion_latencies: Latencies = field(init=False)
    pieces: Histogram = field(default_factory=Histogram)
    syncs: Histogram = field(default_factory=Histogram)
    """Time that it took to make a write durable; a part of its time in the device."""
    first_bytes: Histogram = field(default_factory=Histogram)
    """Time until a store's first answer to a read began; a part of its time in the device."""
    entry_bytes: Histogram = field(default_factory=Histogram)
    """Sizes of the entries whose latencies these are (S15)."""

    def __post_init__(self) -> None:
        self.column = f"{self.tier.value}_{self.verb.value}_bytes"
        self.ops_column = f"{self.tier.value}_{self.verb.value}_ops"
        self.latencies = Latencies(lanes=self.tier is Tier.STORAGE, over_time=self.over_time)
        self.demotion_latencies = Latencies(lanes=self.tier is Tier.STORAGE)

    @property
    def op_count(self) -> int:
        return sum(self.ops.values())

    @property
    def byte_count(self) -> int:
        return sum(self.nbytes.values())

    @property
    def error_count(self) -> int:
        return sum(self.errors.values())

    def complete(self, purpose: Purpose, completion: Completion, nbytes: int, count: int = 1) -> None:
        """So many operations of that size succeeded inside the window, all in this way."""
        self.ops[purpose] += count
        self.entry_bytes.record_all((nbytes,) * count)
        times_ns = (
            completion.submitted_ns,
            completion.started_ns,
            completion.finished_ns,
            completion.device_ns,
        )
        self.latencies.record(*times_ns, count, nbytes)
        if completion.sync_ns:
            self.syncs.record_all((completion.sync_ns,) * count)
        if completion.first_byte_ns:
            self.first_bytes.record_all((completion.first_byte_ns,) * count)
        if purpose is Purpose.DEMOTION:
            self.demotion_latencies.record(*times_ns, count)

    def under_way(
        self, submitted_ns: int, started_ns: int, end_ns: int, device_ns: int, count: int, demotion: bool
    ) -> None:
        """So many operations were under way when the window ended: their age is the least they take."""
        self.in_flight_at_end += count
        self.in_flight_oldest_ns = max(self.in_flight_oldest_ns, end_ns - submitted_ns)
        self.latencies.record(submitted_ns, started_ns, end_ns, device_ns, count)
        if demotion:
            self.demotion_latencies.record(submitted_ns, started_ns, end_ns, device_ns, count)

    def merge(self, other: "Lane") -> None:
        """Add what was counted elsewhere for the same tier and verb."""
        self.ops.update(other.ops)
        self.nbytes.update(other.nbytes)
        self.bytes_by_entry.update(other.bytes_by_entry)
        self.moved_bytes += other.moved_bytes
        self.failed_moved_bytes += other.failed_moved_bytes
        self.errors.update(other.errors)
        self.inside_ns += other.inside_ns
        self.in_flight_at_end += other.in_flight_at_end
        self.in_flight_oldest_ns = max(self.in_flight_oldest_ns, other.in_flight_oldest_ns)
        self.latencies.merge(other.latencies)
        self.demotion_latencies.merge(other.demotion_latencies)
        self.pieces.merge(other.pieces)
        self.syncs.merge(other.syncs)
        self.first_bytes.merge(other.first_bytes)
        self.entry_bytes.merge(other.entry_bytes)


def tokens_of(bytes_by_entry: Mapping[tuple[int, int], int]) -> int:
    """Tokens that so many bytes of entries, by their tokens and size, amount to."""
    by_ratio: Counter[tuple[int, int]] = Counter()
    for (tokens, nbytes), moved in bytes_by_entry.items():
        if tokens and nbytes:
            shared = math.gcd(tokens, nbytes)
            by_ratio[tokens // shared, nbytes // shared] += moved
    whole = sum(moved * tokens // nbytes for (tokens, nbytes), moved in by_ratio.items())
    # What is left of each is below one token; their sum must not lose a whole one to rounding.
    rest = math.fsum(moved * tokens % nbytes / nbytes for (tokens, nbytes), moved in by_ratio.items())
    return whole + int(rest + 1e-6)
