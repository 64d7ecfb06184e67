"""The log of a transfer's system calls: the union of their time, and only what was really moved."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvspill.storage.pieces import PieceLog, done_pieces

intervals = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 60)), max_size=40)


@given(intervals)
def test_union_counts_each_moment_once(spans: list[tuple[int, int]]) -> None:
    rows = np.array([(start, start + length, 1) for start, length in spans], dtype=np.int64).reshape(-1, 3)
    moments = {moment for start, length in spans for moment in range(start, start + length)}
    assert PieceLog(rows).union_ns() == len(moments)


def test_pieces_never_moved_are_not_in_the_log() -> None:
    log = np.array([[3, 1, 0], [10, 20, 4096], [0, 0, 0], [15, 30, 512]], dtype=np.int64)
    pieces = done_pieces(log)
    assert list(pieces) == [(10, 20, 4096), (15, 30, 512)]
    assert pieces[0] == (10, 20, 4096)
    assert list(pieces[1:]) == [(15, 30, 512)]
    assert pieces.union_ns() == 20


def test_an_entry_without_pieces_took_no_device_time() -> None:
    assert done_pieces(np.zeros((1, 3), dtype=np.int64)).union_ns() == 0
