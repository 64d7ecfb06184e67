"""A limit that is dealt out in slices, as the kernel's throttle does it."""

import asyncio
import random
from statistics import mean
from typing import Any

import pytest

from kvspill.records import GIB, MIB, NS_PER_SEC, Verb
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import ObjectRef
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual
from unit.storage import sliced
from unit.storage.lane_loads import lanes, reads, served


def test_a_limit_in_slices_lets_pass_what_one_allows_and_holds_the_rest() -> None:
    model = DeviceModel(0.4, 0.4, lanes=32, read_slice_ms=100, read_burst_gib_per_sec=4.0)
    allowed = 0.4 * GIB / 10
    small, large = served(model, [(Verb.READ, int(allowed), 0), (Verb.READ, int(3.5 * allowed), 10**9)])
    assert small.total_ns == pytest.approx(0.01 * NS_PER_SEC, rel=0.01)
    # Three slices and the half of a fourth, which begins 300 ms after the first.
    assert large.total_ns == pytest.approx(0.305 * NS_PER_SEC, rel=0.01)
    many = served(model, reads(*[16 * MIB] * 400))
    assert many[-1].finished_ns == pytest.approx(400 * 16 * MIB / (0.4 * GIB) * NS_PER_SEC, rel=0.02)


def test_a_piece_that_a_slice_has_no_room_for_waits_as_long_as_the_limit_takes_for_it() -> None:
    """The kernel's throttle lets no part of a request pass: it waits for the next slice and its own bytes."""
    more: Any = {"read_slice_ms": 100, "read_burst_gib_per_sec": 4.0}
    model = lanes(32, 120 / 1024, **more)
    first, second = served(model, [(Verb.READ, 8 * MIB, 0), (Verb.READ, 8 * MIB, NS_PER_SEC // 20)])
    assert first.total_ns < 0.003 * NS_PER_SEC
    # Three pieces of 4 MiB fill the slice of 12; the fourth waits until 100 ms, and 4 MiB at 120 MiB/s.
    assert second.finished_ns == pytest.approx((0.1 + 4 / 120) * NS_PER_SEC, abs=2e6)


def test_what_waited_for_a_slice_passes_a_tick_later_and_the_limit_stays_the_same() -> None:
    more: Any = {"read_slice_ms": 100, "read_burst_gib_per_sec": 4.0}
    asked = [(Verb.READ, 8 * MIB, 0), (Verb.READ, 12 * MIB, NS_PER_SEC // 50)]
    (_, without), (_, late) = (
        served(lanes(32, 120 / 1024, slice_tick_ms=tick_ms, **more), asked) for tick_ms in (0, 4)
    )
    assert late.finished_ns - without.finished_ns == pytest.approx(4e6, abs=1e5)
    many = served(lanes(32, 0.4, slice_tick_ms=4, **more), reads(*[16 * MIB] * 400))
    assert many[-1].finished_ns == pytest.approx(400 * 16 * MIB / (0.4 * GIB) * NS_PER_SEC, rel=0.02)


@pytest.mark.parametrize(("duplex", "read_ms", "write_ms"), [(1.0, 10, 10), (0.0, 20, 20), (0.5, 15, 15)])
def test_bursts_of_reads_and_writes_share_the_disk_behind_limits_of_their_own(
    duplex: float, read_ms: float, write_ms: float
) -> None:
    way: Any = {"slice_ms": 100, "burst_gib_per_sec": 3.90625, "duplex": 1.0, "burst_duplex": duplex}
    more = {f"{word}_{name}": value for word in ("read", "write") for name, value in way.items()}
    model = lanes(32, 400 / 1024, **more)
    asked = [(Verb.READ, 40 * MIB, 0), (Verb.WRITE, 40 * MIB, 0)]
    read, write = served(model, asked)
    assert read.total_ns / 1e6 == pytest.approx(read_ms, rel=0.02)
    assert write.total_ns / 1e6 == pytest.approx(write_ms, rel=0.02)
    # Under full load both limits are reached: a burst is over long before the slice is.
    many = served(model, [(Verb.READ, 16 * MIB, 0), (Verb.WRITE, 16 * MIB, 0)] * 200)
    assert many[-1].finished_ns == pytest.approx(200 * 16 / 400 * NS_PER_SEC, rel=0.02)


def test_of_threads_that_are_done_together_some_take_the_next_entry_while_one_is_opened() -> None:
    """Threads that slept would find the entry open; these are awake, and quicker than the file."""
    more: Any = {"read_slice_ms": 100, "read_burst_gib_per_sec": 4.0, "read_open_us": 300}
    done = served(lanes(4, 80 / 1024, **more), reads(*[16 * MIB] * 4))
    assert [one.started_ns // 10**8 for one in done] == [0, 1, 1, 4]


@pytest.mark.parametrize("kib", [384, 2048, 9 * 1024, 37 * 1024])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_a_limit_in_slices_is_reached_whatever_the_pieces(count: int, kib: int) -> None:
    more: Any = {"read_slice_ms": 100, "read_burst_gib_per_sec": 4.2, "read_piece_us": 200}
    model = lanes(32, 0.1, read_open_us=190, read_alone_gib_per_sec=4.7, **more)
    nbytes = kib * 1024
    number = max(3, GIB // nbytes // count)

    async def main(world: World) -> int:
        backend = ModelledBackend("modelled", model, world.now_ns, alone=(Verb.READ,))

        async def stream(name: str) -> None:
            ref = ObjectRef(name, 0, nbytes)
            backend._objects.add((ref.key, ref.generation))
            for _ in range(number):
                await backend.read([ref])

        await asyncio.gather(*(stream(str(one)) for one in range(count)))
        return world.now_ns()

    least_seconds = count * number * nbytes / (0.1 * GIB) - 0.1
    assert run_virtual(main, seed=1) == pytest.approx(least_seconds * NS_PER_SEC, rel=0.02)


@pytest.mark.parametrize(("streams", "pause_ms"), [(1, 100), (2, 300), (4, 300), (8, 100), (16, 50)])
@pytest.mark.parametrize(("piece_mib", "gib"), [(1, 0.25), (4, 0.12), (4, 0.22)])
def test_a_limit_in_slices_agrees_with_the_throttle_piece_by_piece(
    streams: int, pause_ms: int, piece_mib: int, gib: float
) -> None:
    """Light, middle and full load: the mean time of an entry, and how long all of it takes."""
    more: Any = {"read_slice_ms": 100, "read_burst_gib_per_sec": 2.0, "piece_mib": piece_mib}
    model = lanes(64, gib, **more)
    draw = random.Random(7)
    sizes = [draw.randrange(4, 40) * MIB for _ in range(streams)]
    asked = 6000 // streams

    def pauses() -> list[list[int]]:
        chance = random.Random(11)
        return [[int(2e6 * pause_ms * chance.random()) for _ in range(asked)] for _ in sizes]

    plan, ends = pauses(), [0.0]

    def next_of(stream: int, now_ns: float) -> tuple[float, int] | None:
        ends.append(now_ns)
        return (now_ns + plan[stream].pop(), sizes[stream]) if plan[stream] else None

    took = sliced.simulate(model.direction(Verb.READ), streams, piece_mib * MIB, next_of)
    expected = [took_ns for _nbytes, took_ns in took]

    async def main(world: World) -> tuple[list[int], int]:
        backend, found = ModelledBackend("modelled", model, world.now_ns), list[int]()

        async def stream(number: int, rests: list[int]) -> None:
            ref = ObjectRef(str(number), 0, sizes[number])
            backend._objects.add((ref.key, ref.generation))
            while rests:
                await world.sleep_ns(rests.pop())
                found.append((await backend.read([ref]))[0].total_ns)

        await asyncio.gather(*(stream(number, rests) for number, rests in enumerate(pauses())))
        return found, world.now_ns()

    found, end_ns = run_virtual(main, seed=1)
    assert len(found) == len(expected)
    assert sum(found) == pytest.approx(sum(expected), rel=0.06)
    assert end_ns == pytest.approx(max(ends), rel=0.05)


@pytest.mark.parametrize(("streams", "gib"), [(8, 0.39), (10, 0.39), (16, 0.22)])
def test_short_and_long_entries_wait_as_long_as_by_the_throttle_piece_by_piece(
    streams: int, gib: float
) -> None:
    """Lanes with more to move are in line again before an entry that is done has a successor."""
    more: Any = {"read_slice_ms": 100, "read_burst_gib_per_sec": 4.0}
    model = lanes(64, gib, **more)
    short, long, number = 8 * MIB, 28 * MIB, 8000 // streams

    def plan() -> list[list[int]]:
        draw = random.Random(5)
        return [[draw.choice((short, short, long)) for _ in range(number)] for _ in range(streams)]

    coming = plan()

    def next_of(stream: int, now_ns: float) -> tuple[float, int] | None:
        return (now_ns, coming[stream].pop()) if coming[stream] else None

    expected = sliced.simulate(model.direction(Verb.READ), streams, 4 * MIB, next_of)

    async def main(world: World) -> list[tuple[int, float]]:
        backend, found = ModelledBackend("modelled", model, world.now_ns), list[tuple[int, float]]()

        async def stream(name: str, sizes: list[int]) -> None:
            for nbytes in reversed(sizes):
                ref = ObjectRef(name, 0, nbytes)
                backend._objects.add((ref.key, ref.generation))
                found.append((nbytes, (await backend.read([ref]))[0].total_ns))

        await asyncio.gather(*(stream(str(name), sizes) for name, sizes in enumerate(plan())))
        return found

    found = run_virtual(main, seed=1)
    for nbytes in (short, long):
        assert mean_ns(found, nbytes) == pytest.approx(mean_ns(expected, nbytes), rel=0.02)


def mean_ns(took: list[tuple[int, float]], of_bytes: int) -> float:
    return mean(took_ns for nbytes, took_ns in took if nbytes == of_bytes)
