"""Latencies over time: how many operations took how long, in each step of the measured window."""

import math
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvspill.records import NS_PER_MS, NS_PER_SEC

STEPS_MAX = 120
"""More columns than this don't show on a screen; a longer window has steps of 2, 4, 8… seconds."""
BANDS_PER_DECADE = 6
_LOWEST_NS = 1_000
_DECADES = 9
"""From a microsecond to a thousand seconds; what lies outside counts in the first or last band."""
BANDS = BANDS_PER_DECADE * _DECADES
_BUFFER_VALUES = 1 << 13

Longs = NDArray[np.int64]


def edge_ns(band: int) -> float:
    """Where a band begins, and the one before it ends."""
    return float(_LOWEST_NS * 10 ** (band / BANDS_PER_DECADE))


class LatencyMap:
    """Counts by step and latency band; its size does not depend on the length of the window."""

    __slots__ = ("_counts", "_pending", "_start_ns", "_steps", "_sum_ns", "step_seconds")

    def __init__(self, window_start_ns: int):
        self._start_ns = window_start_ns
        self.step_seconds = 1
        self._steps = 0
        self._sum_ns = 0
        self._counts = np.zeros((STEPS_MAX, BANDS), dtype=np.int64)
        self._pending = array("q")

    def record(self, at_ns: int, latency_ns: int) -> None:
        """One value that was complete then, which must not lie before the window."""
        self._pending.extend((at_ns, latency_ns))
        if len(self._pending) >= _BUFFER_VALUES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            pairs = np.array(self._pending, dtype=np.int64).reshape(-1, 2)
            self._pending = array("q")
            self.add(pairs[:, 0], pairs[:, 1], np.ones(len(pairs), dtype=np.int64))

    def add(self, at_ns: Longs, latency_ns: Longs, times: Longs) -> None:
        """So many values each."""
        seconds = np.maximum(at_ns - self._start_ns, 0) // NS_PER_SEC
        last = int(seconds.max())
        while last // self.step_seconds >= STEPS_MAX:
            self._widen()
        steps = seconds // self.step_seconds
        decades = np.log10(np.maximum(latency_ns, _LOWEST_NS) / _LOWEST_NS)
        bands = np.minimum((decades * BANDS_PER_DECADE).astype(np.int64), BANDS - 1)
        np.add.at(self._counts, (steps, bands), times)
        self._steps = max(self._steps, last // self.step_seconds + 1)
        self._sum_ns += int((latency_ns.astype(np.float64) * times).sum())

    def merge(self, other: "LatencyMap") -> None:
        """Add another's counts step by step; both windows begin together."""
        self._flush()
        other._flush()
        while self.step_seconds < other.step_seconds:
            self._widen()
        while other.step_seconds < self.step_seconds:
            other._widen()
        self._counts += other._counts
        self._sum_ns += other._sum_ns
        self._steps = max(self._steps, other._steps)

    def _widen(self) -> None:
        pairs = self._counts.reshape(STEPS_MAX // 2, 2, BANDS).sum(axis=1)
        self._counts[: STEPS_MAX // 2] = pairs
        self._counts[STEPS_MAX // 2 :] = 0
        self.step_seconds *= 2
        self._steps = math.ceil(self._steps / 2)

    def totals(self) -> tuple[Longs, int]:
        """How many values lie in each band by now, and their sum in nanoseconds."""
        self._flush()
        return self._counts.sum(axis=0), self._sum_ns

    def to_dict(self) -> dict[str, Any] | None:
        """For the result: the bands that have values, from the fastest to the slowest; None without any."""
        self._flush()
        used = np.flatnonzero(self._counts.any(axis=0))
        if not len(used):
            return None
        first, last = int(used[0]), int(used[-1])
        edges = range(first, last + 2)
        return {
            "step_seconds": self.step_seconds,
            "edges_ms": [edge_ns(edge) / NS_PER_MS for edge in edges],
            "counts": self._counts[: self._steps, first : last + 1].tolist(),
        }
