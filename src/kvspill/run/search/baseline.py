"""The unloaded device: how long a read takes while nothing else happens, measured before the load."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from kvspill.errors import KvspillError
from kvspill.records import MIB, NS_PER_MS, Completion
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.texts import duration

_SIZES_BYTES = (MIB, 16 * MIB, 64 * MIB)
_READS = 7
_BUDGET_NS = 2_000_000_000
"""A size is read no further once its reads took this long together: slow devices are known soon enough."""


@dataclass(frozen=True, slots=True)
class UnloadedRead:
    """Time of one read on the idle device: a latency and a time per byte."""

    latency_ns: float
    ns_per_byte: float

    def durations_ns(self, nbytes: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.latency_ns + self.ns_per_byte * nbytes.astype(np.float64)

    def __str__(self) -> str:
        """As times: a bandwidth of reads one by one would stand beside that of many at once."""
        per_mib = f"{duration(self.ns_per_byte * MIB / NS_PER_MS)} per MiB"
        if self.ns_per_byte <= 0:
            return f"{duration(self.latency_ns / NS_PER_MS)} whatever its size"
        return f"{duration(self.latency_ns / NS_PER_MS)} and {per_mib}" if self.latency_ns > 0 else per_mib


async def probe_unloaded(backend: Backend, largest_entry_bytes: int) -> UnloadedRead:
    """Write a few entries, read each alone several times, remove them; the medians give the line."""
    sizes = sorted({min(size, max(1, largest_entry_bytes)) for size in _SIZES_BYTES})
    points = []
    for number, nbytes in enumerate(sizes):
        ref = ObjectRef(f"autoscaler_probe_{number}", 0, nbytes)
        try:
            _check(await backend.write([WriteItem(ref)]), "writing", nbytes)
            points.append((nbytes, await _read_time_ns(backend, ref)))
        finally:
            await backend.delete([ref])
    return fit_line(points)


async def _read_time_ns(backend: Backend, ref: ObjectRef) -> float:
    times_ns: list[int] = []
    while len(times_ns) < _READS and sum(times_ns) < _BUDGET_NS:
        completions = await backend.read([ref])
        _check(completions, "reading", ref.nbytes)
        times_ns.append(completions[0].total_ns)
    return median(times_ns)


def fit_line(points: Sequence[tuple[int, float]]) -> UnloadedRead:
    """The line through the smallest and the largest size; where noise makes it fall, a rate alone."""
    (small_bytes, small_ns), (large_bytes, large_ns) = points[0], points[-1]
    if large_bytes > small_bytes:
        slope = (large_ns - small_ns) / (large_bytes - small_bytes)
        latency_ns = small_ns - slope * small_bytes
        if slope > 0 and latency_ns >= 0:
            return UnloadedRead(latency_ns, slope)
    return UnloadedRead(0.0, large_ns / large_bytes)


def _check(completions: Sequence[Completion], what: str, nbytes: int) -> None:
    error = completions[0].error
    if error is not None:
        raise KvspillError(
            f"{what} {nbytes} bytes on the idle storage tier failed: {error}; "
            "check the cache directory and --storage-capacity-gb before searching for a limit"
        )
