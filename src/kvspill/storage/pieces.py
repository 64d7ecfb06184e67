"""The system calls of one transfer, kept compactly: an entry of gigabytes has thousands of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from kvspill.records import Piece

Rows = npt.NDArray[np.int64]
_SMALL = 16
"""Up to here a plain loop is faster than array operations."""


class PieceLog(Sequence[Piece]):
    """Pieces as rows of start_ns, end_ns, nbytes; `rows` is the whole array."""

    __slots__ = ("rows",)

    def __init__(self, rows: Rows):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Piece]:
        return map(tuple, self.rows.tolist())

    @overload
    def __getitem__(self, index: int) -> Piece: ...

    @overload
    def __getitem__(self, index: slice) -> "PieceLog": ...

    def __getitem__(self, index: int | slice) -> "Piece | PieceLog":
        if isinstance(index, slice):
            return PieceLog(self.rows[index])
        start_ns, end_ns, nbytes = self.rows[index].tolist()
        return start_ns, end_ns, nbytes

    def union_ns(self) -> int:
        """Time during which at least one piece was inside its system call (S2)."""
        if len(self.rows) == 1:
            return self.rows.item(1) - self.rows.item(0)
        if len(self.rows) <= _SMALL:
            return union_ns([(start_ns, end_ns) for start_ns, end_ns, _ in self.rows.tolist()])
        order = np.argsort(self.rows[:, 0], kind="stable")
        starts, ends = self.rows[order, 0], np.maximum.accumulate(self.rows[order, 1])
        gaps = starts[1:] - ends[:-1]
        return int(ends[-1] - starts[0] - gaps[gaps > 0].sum())


def union_ns(spans: Iterable[tuple[int, int]], reached_ns: int = 0) -> int:
    """The time from one moment on that lies in at least one of the spans."""
    total_ns = 0
    for start_ns, end_ns in sorted(spans):
        if end_ns > reached_ns:
            total_ns += end_ns - max(start_ns, reached_ns)
            reached_ns = end_ns
    return total_ns


def done_pieces(log: Rows) -> PieceLog:
    """The pieces of a span's log that were moved: rows of a piece never done are zero."""
    rows = log[1:]
    if len(rows) == 1 and rows.item(2) > 0:
        return PieceLog(rows)
    done = rows[:, 2] > 0
    return PieceLog(rows if done.all() else rows[done])
