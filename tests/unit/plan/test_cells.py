"""What a calibration writes is bounded, whatever the device, and every cell is held all the same."""

import time
from dataclasses import replace
from functools import cache

import pytest

from kvspill.plan.calibrate import _measure
from kvspill.plan.cells import Bench, Cell, Point
from kvspill.plan.schedule import FULL, QUICK, Length, Schedule
from kvspill.records import MIB, Verb
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.jobs import LANES_PER_ENTRY
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual


@cache
def held(length: Length, speed: float, piece_bytes: int) -> tuple[Schedule, list[Point], int]:
    """Every cell on a drive of so many GiB/s."""
    schedule = Schedule(32, 0, piece_bytes, LANES_PER_ENTRY, replace(length, rounds=2))
    model = DeviceModel(
        read_gib_per_sec=speed, write_gib_per_sec=speed, read_latency_us=20, write_latency_us=20
    )

    async def main(world: World) -> tuple[list[Point], int]:
        bench = Bench(world, ModelledBackend("modelled", model, world.now_ns))
        points, _rounds = await _measure(bench, schedule, time.monotonic(), lambda _text: None)
        return points, bench.written_bytes

    return schedule, *run_virtual(main, seed=0)


@pytest.mark.parametrize(("length", "speed"), [(FULL, 0.2), (FULL, 8.0), (QUICK, 0.2), (QUICK, 30.0)])
def test_every_cell_is_held_on_a_drive_of_any_speed(length: Length, speed: float) -> None:
    schedule, points, written_bytes = held(length, speed, 4 * MIB)
    assert written_bytes <= schedule.written_at_most_bytes()
    for point in points:
        for verb, workers in ((Verb.READ, point.cell.readers), (Verb.WRITE, point.cell.writers)):
            assert len(point.of(verb).completions) >= workers, point.cell.name


def test_a_quick_drive_ends_the_cells_that_write_before_their_time() -> None:
    _schedule, points, _bytes = held(FULL, 8.0, 4 * MIB)
    writes = next(point for point in points if point.cell.name == "saturated writes")
    reads = next(point for point in points if point.cell.name == "saturated reads")
    assert writes.writes.ended_ns - writes.writes.began_ns < 0.5e9
    assert reads.reads.ended_ns - reads.reads.began_ns == 3e9
    assert writes.writes.bytes_per_sec() == pytest.approx(reads.reads.bytes_per_sec(), rel=0.05)


def test_a_mixed_cell_ends_for_those_who_read_too() -> None:
    async def main(world: World) -> Point:
        model = DeviceModel(read_gib_per_sec=1, write_gib_per_sec=1)
        bench = Bench(world, ModelledBackend("modelled", model, world.now_ns))
        return await bench.hold(Cell("mixed", MIB, 2, 2, seconds=10.0, write_bytes_max=64 * MIB))

    point = run_virtual(main, seed=0)
    assert len(point.writes.completions) == 64
    assert len(point.reads.completions) == pytest.approx(64, abs=3)
    assert point.reads.ended_ns == point.writes.ended_ns < 1e9


def test_large_pieces_keep_the_bound() -> None:
    schedule, _points, written_bytes = held(QUICK, 6.0, 64 * MIB)
    assert written_bytes <= schedule.written_at_most_bytes()
