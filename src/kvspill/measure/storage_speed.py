"""The storage's speed over time: what it moved while it was at work, whatever was asked of it.

How many bytes move in a second depends on who asks; how long the storage is at work on a byte depends on the
storage. So this shows a change of the device where the rates of a load vary too much to show one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BUSY = "storage_busy_ns"
"""Column of the timeline: how long of each step the storage was at work on reads and writes.

Of ranks that store in the same place no more than the step, of places of their own the sum.
"""
SLOW_DELETES = "storage_slow_delete_ns"
"""Column of the timeline: how long of each step a delete was under way that took longer than a second."""
_READ, _WRITTEN = "storage_read_bytes", "storage_write_bytes"
_OPS = ("storage_read_ops", "storage_write_ops")
OPS_PER_BATCH = 2
_PRICES_APART = 10.0
"""No byte takes longer than another by more: a few reads that begin with a change do not explain it."""


@dataclass(frozen=True, slots=True)
class Speed:
    """The window in batches in which the storage was at work equally long."""

    relative: list[float]
    """The speed in each batch; the mean is 1."""
    edges: list[float]
    """Where batches begin and end, in steps of the timeline."""
    bytes_per_busy_sec: float
    busy_seconds: float


def storage_speed(columns: Mapping[str, Sequence[float]], steps: int, most: int, least: int) -> Speed | None:
    """In at most so many batches; None where there are operations for fewer than the least."""
    if BUSY not in columns:
        return None
    ops = sum(sum(columns[name][:steps]) for name in _OPS if name in columns)
    count = min(most, int(ops) // OPS_PER_BATCH)
    busy = _from_zero(columns[BUSY][:steps])
    if count < least or not busy[-1]:
        return None
    places = np.arange(len(busy))
    edges = np.interp(np.linspace(0.0, busy[-1], count + 1), busy, places)
    sums = [_from_zero(columns.get(name, [0] * steps)[:steps]) for name in (_READ, _WRITTEN)]
    moved = np.array([np.diff(np.interp(edges, places, column)) for column in sums])
    work = _work(moved)
    seconds = float(busy[-1]) / 1e9
    return Speed(
        relative=(work / work.mean()).tolist(),
        edges=edges.tolist(),
        bytes_per_busy_sec=float(moved.sum()) / seconds,
        busy_seconds=seconds,
    )


def _from_zero(values: Sequence[float]) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])


def _work(moved: Floats) -> Floats:
    """What moved in each batch in units of the time that it takes: a byte written takes longer than one read.

    How much longer is told by the batches themselves, as far as their shares of reads and writes differ.
    """
    read, written = np.linalg.lstsq(moved.T, np.ones(moved.shape[1]), rcond=None)[0]
    # Where they hardly differ, a price may come out below nothing: then all bytes count the same.
    price = written / read if read > 0 and written > 0 else 1.0
    work: Floats = moved[0] + min(max(price, 1 / _PRICES_APART), _PRICES_APART) * moved[1]
    return work
