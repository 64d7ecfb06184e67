"""The middle of a measurement, reckoned from its pieces."""

import numpy as np
import pytest

from lib.pieces import steady


def rows(*pieces: tuple[float, float, int]) -> np.ndarray:
    return np.array([(start * 1e9, end * 1e9, nbytes) for start, end, nbytes in pieces], dtype=np.int64)


def test_a_piece_counts_as_far_as_it_lies_in_the_middle() -> None:
    # Of one second the time from 0.15 to 0.95 counts: 0.4 s of the first piece, nothing of the last.
    found = steady(rows((0.05, 0.55, 1000), (0.96, 0.99, 1000)), 0, 1.0)
    assert found.bandwidth == pytest.approx(1000 * 0.4 / 0.5 / 0.8)
    assert found.in_flight == pytest.approx(0.4 / 0.8)


def test_latency_is_of_the_pieces_that_end_in_the_middle() -> None:
    pieces = [(0.01 * at, 0.01 * at + 0.005, 1) for at in range(20, 90)]
    found = steady(rows(*pieces, (0.0, 0.1, 1), (0.5, 1.2, 1)), 0, 1.0)
    assert found.mean_ns == pytest.approx(5e6)
    assert found.p95_ns == pytest.approx(5e6)


def test_the_clock_begins_where_it_is_told_to() -> None:
    pieces = rows(*((5 + 0.01 * at, 5.01 + 0.01 * at, 100) for at in range(100)))
    assert steady(pieces, 5_000_000_000, 1.0).bandwidth == pytest.approx(10_000)
    with pytest.raises(RuntimeError, match="no piece ended"):
        steady(pieces, 0, 1.0)
