"""Both sides of a comparison must have the same pieces in flight and follow the same sequence."""

from itertools import islice

import pytest

import lib.fio as fio
from kvspill.storage import jobs
from lib.shape import LANES_PER_ENTRY, MIB, Cell, operations

SHAPES = [(size * MIB, flight) for size in (2, 32, 256) for flight in (1, 8, 32)]


def test_the_comparison_knows_how_many_pieces_of_an_entry_kvspill_moves_at_once() -> None:
    assert jobs.LANES_PER_ENTRY == LANES_PER_ENTRY


@pytest.mark.parametrize(
    ("size", "in_flight", "pieces"),
    [(2, 1, 1), (2, 8, 8), (2, 32, 32), (32, 1, 4), (32, 8, 32), (32, 32, 32), (256, 1, 4), (256, 32, 32)],
)
def test_pieces_in_flight_are_bounded_by_entries_lanes_and_threads(
    size: int, in_flight: int, pieces: int
) -> None:
    assert Cell("read", size * MIB, in_flight).pieces_in_flight == pieces


@pytest.mark.parametrize("engine", ["psync", "io_uring"])
@pytest.mark.parametrize(("entry_bytes", "in_flight"), SHAPES)
def test_fio_keeps_the_same_number_of_pieces_in_flight(engine: str, entry_bytes: int, in_flight: int) -> None:
    cell = Cell("write", entry_bytes, in_flight)
    cell.check()
    shape = fio.layout(engine, cell)
    assert shape.slots * shape.lanes * shape.depth == cell.pieces_in_flight


def test_memory_is_written_by_one_thread_per_file_and_read_by_several() -> None:
    assert Cell("write", 32 * MIB, 8, MIB, 8, memory=True).lanes == 1
    assert Cell("read", 32 * MIB, 8, MIB, 8, memory=True).lanes == 4
    for op in ("read", "write", "mix"):
        assert Cell(op, 32 * MIB, 8, MIB, 8, memory=True).pieces_in_flight == 8


def test_pieces_that_do_not_divide_the_entry_are_refused() -> None:
    with pytest.raises(ValueError, match="choose an --io-size"):
        Cell("read", 20 * MIB, 8, 8 * MIB).check()


def test_the_mix_is_twelve_reads_for_each_write() -> None:
    ops = list(islice(operations("mix", old_entries=5), 13 * 20))
    assert sum(op.write for op in ops) == 20
    assert [op.number for op in ops if op.write] == list(range(20))
    assert [op.number for op in ops if not op.write][:7] == [0, 1, 2, 3, 4, 0, 1]


def test_reads_never_write_and_writes_never_read() -> None:
    assert not any(op.write for op in islice(operations("read", 3), 50))
    assert all(op.write for op in islice(operations("write", 3), 50))
