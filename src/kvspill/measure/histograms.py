"""Latency histograms: HdrHistogram behind a buffer, so that recording a value costs next to nothing."""

import base64
import math
import zlib
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy import ctypeslib
from numpy.typing import NDArray

from kvspill.inputs import HISTOGRAM_BYTES_MAX
from kvspill.records import NS_PER_MS

HIGHEST_NS = 48 * 3600 * 1_000_000_000
SIGNIFICANT_DIGITS = 3
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "p9999": 99.99}
STATISTICS = ("mean", *PERCENTILES, "max")
_BUFFER_VALUES = 1 << 16
_PACKED_HEADER_BYTES = 8
_SUB_BUCKET_BITS = 11
"""HdrHistogram keeps 2,048 steps per power of two at three significant digits."""


class Histogram:
    """Nanoseconds from 1 ns to two days at three digits; count, mean and maximum are exact.

    Values wait in an array and enter the HdrHistogram in bulk, one call per distinct step.
    """

    __slots__ = ("_count", "_hdr", "_max_ns", "_pending", "_sum_ns")

    def __init__(self) -> None:
        self._hdr: Any = None
        self._pending = array("q")
        self._count = 0
        self._sum_ns = 0
        self._max_ns = 0

    def record(self, value_ns: int) -> None:
        """Add one value. A negative one (clock rounding) counts as zero in percentiles."""
        pending = self._pending
        pending.append(value_ns)
        if len(pending) >= _BUFFER_VALUES:
            self._flush()

    def record_all(self, values_ns: Iterable[int]) -> None:
        self._pending.extend(values_ns)
        if len(self._pending) >= _BUFFER_VALUES:
            self._flush()

    def record_array(self, values_ns: NDArray[np.int64]) -> None:
        self._pending.frombytes(values_ns.tobytes())
        if len(self._pending) >= _BUFFER_VALUES:
            self._flush()

    @property
    def count(self) -> int:
        return self._count + len(self._pending)

    @property
    def sum_ns(self) -> int:
        self._flush()
        return self._sum_ns

    @property
    def max_ns(self) -> int | None:
        self._flush()
        return self._max_ns if self._count else None

    @property
    def mean_ns(self) -> float | None:
        self._flush()
        return self._sum_ns / self._count if self._count else None

    def _flush(self) -> None:
        if not self._pending:
            return
        values = np.array(self._pending, dtype=np.int64)
        self._pending = array("q")
        self._count += len(values)
        # Summed in two parts so that a buffer of two-day values can't overflow 64 bits.
        self._sum_ns += (int((values >> 20).sum()) << 20) + int((values & 0xFFFFF).sum())
        self._max_ns = max(self._max_ns, int(values.max()))
        steps, counts = np.unique(_lowest_equivalent(np.clip(values, 0, HIGHEST_NS)), return_counts=True)
        if self._hdr is None:
            self._hdr = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
        for value_ns, count in zip(steps.tolist(), counts.tolist(), strict=True):
            self._hdr.record_value(value_ns, count)

    def merge(self, other: "Histogram") -> None:
        """Add all of the other's values to this one."""
        self._flush()
        other._flush()
        if other._hdr is None:
            return
        if self._hdr is None:
            self._hdr = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
        self._hdr.add(other._hdr)
        self._count += other._count
        self._sum_ns += other._sum_ns
        self._max_ns = max(self._max_ns, other._max_ns)

    def __getstate__(self) -> dict[str, Any]:
        """Few of the steps are in use: those with their counts are all that has to travel."""
        self._flush()
        counts = None if self._hdr is None else ctypeslib.as_array(self._hdr.counts)
        steps = None if counts is None else np.flatnonzero(counts).astype(np.int32)
        return {
            "exact": (self._count, self._sum_ns, self._max_ns),
            "steps": steps,
            "counts": None if counts is None else counts[steps],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._count, self._sum_ns, self._max_ns = state["exact"]
        if state["steps"] is None:
            return
        self._hdr = hdr = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
        ctypeslib.as_array(hdr.counts)[state["steps"]] = state["counts"]
        hdr.total_count = self._count
        lowest, highest = (hdr.get_value_from_index(int(state["steps"][end])) for end in (0, -1))
        hdr.min_value, hdr.max_value = lowest, highest

    def percentiles_ns(self) -> dict[str, int] | None:
        """The standard percentiles, or None where nothing was recorded; never above the exact maximum."""
        self._flush()
        if self._hdr is None:
            return None
        values_ns = nearest_ranks(self._hdr, PERCENTILES.values())
        return {
            name: min(value_ns, self._max_ns) for name, value_ns in zip(PERCENTILES, values_ns, strict=True)
        }

    def statistics_ms(self) -> dict[str, float] | None:
        """Mean, percentiles and maximum in milliseconds, or None where nothing was recorded."""
        percentiles = self.percentiles_ns()
        mean_ns = self.mean_ns
        if percentiles is None or mean_ns is None:
            return None
        in_ns = {"mean": mean_ns, **percentiles, "max": self._max_ns}
        return {name: value_ns / NS_PER_MS for name, value_ns in in_ns.items()}

    def count_above(self, limit_ns: int) -> int:
        """How many values exceed the limit, to the histogram's three digits."""
        self._flush()
        if self._hdr is None or limit_ns >= self._max_ns:
            return 0
        index = self._hdr.get_counts_array_index(max(0, limit_ns))
        return int(ctypeslib.as_array(self._hdr.counts)[index + 1 :].sum())

    def to_dict(self) -> dict[str, Any] | None:
        """For the result file: the base64 form that every HdrHistogram library reads, and the exact parts."""
        self._flush()
        if self._hdr is None:
            return None
        return {
            "count": self._count,
            "sum_ns": self._sum_ns,
            "max_ns": self._max_ns,
            "hdr": self._hdr.encode().decode("ascii"),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Histogram":
        """The inverse of to_dict."""
        histogram = cls()
        histogram._hdr = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
        histogram._hdr.add(decoded(data["hdr"]))
        histogram._count = data["count"]
        histogram._sum_ns = data["sum_ns"]
        histogram._max_ns = data["max_ns"]
        return histogram


def nearest_ranks(hdr: Any, percents: Iterable[float]) -> list[int]:
    """For each the smallest value that at least this share of all does not exceed."""
    cumulated = np.cumsum(ctypeslib.as_array(hdr.counts))
    targets = [max(1, math.ceil(round(percent / 100 * int(cumulated[-1]), 6))) for percent in percents]
    places = np.searchsorted(cumulated, targets)
    return [hdr.get_highest_equivalent_value(hdr.get_value_from_index(int(place))) for place in places]


def decoded(text: str) -> HdrHistogram:
    """The HdrHistogram in its base64 form; a ValueError where it unpacks to more than one can be."""
    raw = base64.b64decode(text)[_PACKED_HEADER_BYTES:]
    unpacker = zlib.decompressobj()
    unpacker.decompress(raw, HISTOGRAM_BYTES_MAX)
    if not unpacker.eof:
        raise ValueError(f"cut short, or more than {HISTOGRAM_BYTES_MAX >> 20} MiB unpacked")
    return HdrHistogram.decode(text)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """A new histogram with the values of all."""
    total = Histogram()
    for histogram in histograms:
        total.merge(histogram)
    return total


def _lowest_equivalent(values_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each value rounded down to HdrHistogram's step, so that few distinct values remain to be recorded."""
    bits = np.frexp(values_ns.astype(np.float64))[1]
    shift = np.maximum(bits - _SUB_BUCKET_BITS, 0).astype(np.int64)
    steps_ns: NDArray[np.int64] = (values_ns >> shift) << shift
    return steps_ns
