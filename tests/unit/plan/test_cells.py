"""What a calibration writes is bounded, whatever the device, and every cell is held all the same."""

import time
from dataclasses import replace
from functools import cache

import pytest

from kvspill.plan.calibrate import _measure, stood_still
from kvspill.plan.cells import Bench, Cell, Point, Seen
from kvspill.plan.schedule import FULL, QUICK, Length, Schedule
from kvspill.records import MIB, NS_PER_SEC, Completion, Verb
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
        benches = {
            part: Bench(world, ModelledBackend("modelled", model, world.now_ns)) for part in schedule.parts
        }
        points, _rounds = await _measure(benches, schedule, time.monotonic(), lambda _text: None)
        return points, sum(bench.written_bytes for bench in benches.values())

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


def still(pieces: list[tuple[float, float]], length: float = 3.0) -> Seen:
    """What is seen of pieces of 1 MiB with these starts and ends in seconds, in a cell of such a length."""
    done = []
    for start, end in pieces:
        start_ns, end_ns = round(start * NS_PER_SEC), round(end * NS_PER_SEC)
        done.append(Completion(start_ns, start_ns, end_ns, end_ns - start_ns, ((start_ns, end_ns, MIB),)))
    return Seen(done, MIB, 0, round(length * NS_PER_SEC))


def test_a_device_that_hangs_at_the_end_of_a_cell_is_no_faster_for_that() -> None:
    quick = [(number / 100, (number + 1) / 100) for number in range(150)]
    assert still(quick).bytes_per_sec() == pytest.approx(100 * MIB)
    hung = still([*quick, (1.5, 11.5)])
    assert hung.still_seconds() == pytest.approx(10.0)
    assert hung.bytes_per_sec() == pytest.approx(151 * MIB / 11.5)


@pytest.mark.parametrize(
    "pieces",
    [
        [(0.0, 8.0), (0.0, 8.1), (8.0, 16.0)],
        [(number * 2.0, number * 2.0 + 0.01) for number in range(5)],
        [(number / 100, (number + 1) / 100 + 0.8 * (number == 50)) for number in range(100)],
        [],
    ],
    ids=["a slow device", "pauses between questions", "less than a second", "nothing"],
)
def test_where_the_usual_times_explain_it_nothing_stood_still(pieces: list[tuple[float, float]]) -> None:
    assert still(pieces).still_seconds() == 0.0


def test_a_calibration_says_which_cells_stood_still_and_for_how_long() -> None:
    quick = [(number / 100, (number + 1) / 100) for number in range(150)]
    cells = [Cell("saturated reads", MIB, 1), Cell("saturated reads", MIB, 1), Cell("mixed 1:1", MIB, 1)]
    seen = [still([*quick, (1.5, 3.5)]), still([*quick, (1.5, 11.5)]), still(quick)]
    points = [Point(cell, one, Seen(nbytes=MIB)) for cell, one in zip(cells, seen, strict=True)]
    assert stood_still(points) == [
        "it stood still: nothing was completed for 10.0 s (saturated reads): the device hung, or this "
        "program was stopped; measure it again"
    ]
