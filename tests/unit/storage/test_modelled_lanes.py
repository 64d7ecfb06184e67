"""The device behind lanes: order, limits, and agreement with threads that move piece after piece."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.records import GIB, MIB, NS_PER_SEC, Completion, Verb
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.modelled.laned import LanedDevice
from kvspill.storage.profiles import DeviceModel
from kvspill.storage.variants import side_by_side
from kvspill.world import World, run_virtual
from unit.storage import piecewise
from unit.storage.lane_loads import Asked, lanes, reads, seconds, served


@pytest.mark.parametrize(("slice_ms", "abreast"), [(0, 0), (100, 0), (0, 1)])
def test_what_is_looked_ahead_comes_out_as_if_it_was_waited_for(slice_ms: float, abreast: int) -> None:
    draw = random.Random(3)
    verbs = (Verb.READ, Verb.WRITE)
    asked = [
        (draw.choice(verbs), draw.randrange(1, 64 * MIB), draw.randrange(40_000_000)) for _ in range(300)
    ]
    model = lanes(
        *(16, 1.0),
        read_open_us=150,
        read_piece_us=300,
        read_duplex=0.5,
        read_slice_ms=slice_ms,
        read_burst_gib_per_sec=3.0,
        **side(abreast),
    )
    looked, waited = served(model, asked), served(model, asked, tick_ns=100_000)
    for one, other in zip(looked, waited, strict=True):
        assert one.finished_ns == pytest.approx(other.finished_ns, abs=10_000)


def test_one_entry_takes_its_bytes_over_the_bandwidth() -> None:
    (done,) = served(lanes(32), reads(GIB))
    assert done.finished_ns == pytest.approx(NS_PER_SEC, rel=1e-9)
    assert done.queue_ns == 0


def test_entries_beyond_the_lanes_wait_in_order_of_arrival() -> None:
    done = served(lanes(4), reads(GIB, GIB, GIB))
    assert seconds(done) == [1.0, 2.0, 3.0]
    assert [one.queue_ns for one in done] == [0, pytest.approx(NS_PER_SEC), pytest.approx(2 * NS_PER_SEC)]


def test_a_device_comes_up_to_its_speed_with_more_than_half_of_the_lanes() -> None:
    model = lanes(16, read_few_gib_per_sec=0.5)
    half, most, full = (served(model, reads(*[GIB] * count)) for count in (2, 3, 4))
    assert seconds(half)[-1] == pytest.approx(2 / 0.5, rel=0.02)
    assert seconds(most)[-1] == pytest.approx(3 / 0.75, rel=0.02)
    assert seconds(full)[-1] == pytest.approx(4 / 1.0, rel=0.02)


@pytest.mark.parametrize(("later_ns", "ends"), [(0, 2.0), (NS_PER_SEC, 2.5)])
def test_pieces_of_the_other_direction_are_in_flight_too(later_ns: int, ends: float) -> None:
    model = lanes(16, read_few_gib_per_sec=0.5, write_few_gib_per_sec=0.5, read_duplex=1, write_duplex=1)
    asked = [(Verb.READ, GIB, 0)] * 2 + [(Verb.WRITE, GIB, later_ns), (Verb.WRITE, GIB, 0)]
    assert seconds(served(model, asked))[1] == pytest.approx(ends, rel=0.02)


def test_drives_side_by_side_come_up_to_their_speed_with_a_share_of_the_lanes_each() -> None:
    one = lanes(16, read_few_gib_per_sec=0.5)
    two = side_by_side(one, 2)
    assert seconds(served(one, reads(*[GIB] * 4)))[-1] == pytest.approx(4 / 1.0, rel=0.02)
    assert seconds(served(two, reads(*[GIB] * 4)))[-1] == pytest.approx(4 / (2 * 0.5), rel=0.02)


def test_entries_of_one_piece_take_one_lane_each() -> None:
    done = served(lanes(8), reads(*[4 * MIB] * 16))
    assert seconds(done) == [round((number + 1) * 4 * MIB / GIB, 6) for number in range(16)]
    assert [one.queue_ns == 0 for one in done] == [True] * 8 + [False] * 8


def test_at_most_four_pieces_of_an_entry_are_in_flight() -> None:
    """Two entries on 32 lanes hold four each, whatever their size: they share the device equally (E2)."""
    first, second = served(lanes(32), reads(GIB, GIB // 2))
    assert second.finished_ns == pytest.approx(NS_PER_SEC, rel=0.02)
    assert first.finished_ns == pytest.approx(1.5 * NS_PER_SEC, rel=0.02)


def test_reads_and_writes_have_a_budget_each_where_the_device_is_duplex() -> None:
    asked = [(Verb.READ, GIB, 0), (Verb.WRITE, GIB, 0)]
    apart = served(lanes(32, read_duplex=1, write_duplex=1), asked)
    shared = served(lanes(32), asked)
    assert seconds(apart) == [1.0, 1.0]
    assert seconds(shared) == [2.0, 2.0]


def test_writes_with_lanes_of_their_own_do_not_wait_for_reads() -> None:
    asked = [*reads(*[GIB] * 3), (Verb.WRITE, GIB, 0)]
    shared, apart = served(lanes(4), asked), served(lanes(4, write_lanes=4), asked)
    assert shared[3].queue_ns > 2 * NS_PER_SEC
    assert apart[3].queue_ns == 0


def test_a_burst_goes_at_its_own_speed_and_comes_back() -> None:
    model = lanes(32, read_burst_mib=512, read_burst_gib_per_sec=10.0)
    asked = [(Verb.READ, GIB // 2, 0), (Verb.READ, GIB // 2, NS_PER_SEC // 10), (Verb.READ, GIB // 4, 10**10)]
    first, second, third = served(model, asked)
    assert first.total_ns == pytest.approx(0.05 * NS_PER_SEC, rel=0.01)
    # Credit: 512 - 512 + what came back in 0.1 s; the rest goes at 1 GiB/s.
    assert second.total_ns > 0.35 * NS_PER_SEC
    assert third.total_ns == pytest.approx(0.025 * NS_PER_SEC, rel=0.01)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("slice_ms", "abreast"), [(0, 0), (100, 0), (0, 1)])
def test_lanes_are_neither_lost_nor_made(seed: int, slice_ms: int, abreast: int) -> None:
    """Many entries at once, so that lanes join and leave in the midst of turns."""
    figures: Any = {
        f"{verb}_{name}": value
        for verb in ("read", "write")
        for name, value in (
            ("slice_ms", slice_ms),
            ("side_by_side", abreast),
            ("burst_gib_per_sec", 4.0),
            ("piece_us", 200),
            ("duplex", 1.0),
        )
    }
    model = lanes(32, 0.39, read_open_us=80, write_open_us=200, read_alone_gib_per_sec=4.0, **figures)

    async def main(world: World) -> None:
        backend = ModelledBackend("modelled", model, world.now_ns)
        device = backend._device
        assert isinstance(device, LanedDevice)

        async def stream(name: str) -> None:
            draw = random.Random(f"{seed} {name}")
            for number in range(150):
                refs = [ObjectRef(f"{name} {number}", 0, draw.randrange(6 * MIB, 18 * MIB))]
                if draw.random() < 0.1:
                    await backend.write([WriteItem(ref) for ref in refs])
                else:
                    backend._objects.update((ref.key, ref.generation) for ref in refs)
                    assert len(await backend.read(refs)) == len(refs)
                assert 0 <= device._reads.pool.free <= 32

        await asyncio.gather(*(stream(str(number)) for number in range(24)))
        assert device._reads.pool.free == 32

    run_virtual(main, seed=1)


def test_the_first_lane_opens_an_entry_before_others_join() -> None:
    (done,) = served(lanes(32, read_open_us=500), reads(GIB))
    assert done.finished_ns == pytest.approx(NS_PER_SEC + 500_000, rel=1e-6)
    assert done.host_ns == pytest.approx(500_000, abs=2)


def test_lanes_help_the_first_of_many_entries_before_they_take_up_the_last() -> None:
    """As threads do: a file is open, and its other pieces are first in line, before all threads are awake."""
    ends = seconds(served(lanes(32, read_open_us=50), reads(*[12 * MIB] * 40)))
    assert ends == sorted(ends)
    assert ends[0] == pytest.approx(12 / 1024, rel=0.1)
    assert ends[9] == pytest.approx(10 * 12 / 1024, rel=0.05)


def test_a_piece_alone_is_limited_by_latency_many_by_bandwidth() -> None:
    model = lanes(32, 4.0, read_piece_us=1000, read_alone_gib_per_sec=1.0)
    (alone,) = served(model, reads(4 * MIB))
    assert alone.total_ns == pytest.approx(1_000_000 + 4 * MIB / GIB * 1e9, rel=0.01)
    few = served(model, reads(*[4 * MIB] * 4))
    assert few[-1].total_ns == pytest.approx(alone.total_ns + 3 * 4 * MIB / (4 * GIB) * 1e9, rel=0.01)
    many = served(model, reads(*[4 * MIB] * 3200))
    assert many[-1].finished_ns == pytest.approx(3200 * 4 * MIB / (4 * GIB) * 1e9, rel=0.01)


def test_requests_begin_no_faster_than_their_rate() -> None:
    done = served(lanes(32, 100.0, requests_per_sec=10.0), reads(*[MIB] * 20))
    assert done[-1].finished_ns == pytest.approx(1.9 * NS_PER_SEC, rel=0.01)


def test_latency_with_a_tail_keeps_its_median() -> None:
    model = DeviceModel(100.0, 100.0, read_latency_us=10_000, latency_sigma=0.5, lanes=4000)
    done = sorted(one.total_ns for one in served(model, [(Verb.READ, n, 0) for n in range(2000)]))
    assert done[1000] == pytest.approx(10_000_000, rel=0.1)
    # p99 of a lognormal: median * exp(2.33 sigma).
    assert done[1980] == pytest.approx(10_000_000 * 3.2, rel=0.2)


def test_cancelling_reports_what_was_moved() -> None:
    async def main(world: World) -> Any:
        backend = ModelledBackend("modelled", lanes(32), world.now_ns)
        write = asyncio.ensure_future(backend.write([WriteItem(ObjectRef("a", 0, GIB))]))
        await world.sleep_ns(NS_PER_SEC // 4)
        backend.cancel()
        return (await write)[0]

    cut = run_virtual(main, seed=1)
    assert cut.error == "cancelled"
    assert sum(nbytes for _start, _end, nbytes in cut.pieces) == pytest.approx(GIB // 4, abs=8 * MIB)


def test_blocks_of_one_batch_that_are_alike_cost_few_events() -> None:
    """A thousand equal blocks end in as many steps as lanes take them up, not one by one (E12)."""

    async def main(world: World) -> list[Completion]:
        backend = ModelledBackend("modelled", lanes(32), world.now_ns)
        return await backend.write([WriteItem(ObjectRef(str(n), 0, MIB)) for n in range(1024)])

    done = run_virtual(main, seed=1)
    assert len(done) == 1024
    assert len({one.finished_ns for one in done}) == 32
    assert done[-1].finished_ns == pytest.approx(NS_PER_SEC, rel=1e-6)


def test_entries_asked_for_at_once_are_opened_one_after_another() -> None:
    done = served(lanes(32, write_open_us=300, write_open_apart_us=100), [(Verb.WRITE, 4096, 1)] * 8)
    opened_us = [one.host_ns / 1000 for one in done]
    assert opened_us == [pytest.approx(300 + 100 * number, rel=1e-3) for number in range(8)]


def test_a_program_hears_of_one_operation_after_another() -> None:
    """The operation itself takes no longer; what asks next has to wait for its turn."""

    async def main(world: World) -> list[tuple[int, int]]:
        backend = ModelledBackend("modelled", lanes(32, answer_us=1000), world.now_ns)

        async def write(number: int) -> tuple[int, int]:
            (done,) = await backend.write([WriteItem(ObjectRef(str(number), 0, 4096))])
            return done.finished_ns, world.now_ns()

        return await asyncio.gather(*map(write, range(3)))

    rows = run_virtual(main, seed=1)
    assert all(finished_ns < 50_000 for finished_ns, _heard_ns in rows)
    assert [heard_ns for _finished_ns, heard_ns in rows] == [
        pytest.approx(1e6 * (number + 1), rel=0.05) for number in range(3)
    ]


@pytest.mark.parametrize("pieces", [2, 4, 9])
def test_blocks_that_are_alike_go_as_if_they_were_asked_for_one_by_one(pieces: int) -> None:
    """A batch of equal entries of several pieces: each is done when its turn comes."""
    nbytes = pieces * 4 * MIB

    async def main(world: World) -> list[Completion]:
        backend = ModelledBackend("modelled", lanes(32, write_open_us=200), world.now_ns)
        return await backend.write([WriteItem(ObjectRef(str(n), 0, nbytes)) for n in range(100)])

    together = run_virtual(main, seed=1)
    apart = served(lanes(32, write_open_us=200), [(Verb.WRITE, nbytes, 1) for _ in range(100)])
    last = max(one.finished_ns for one in together)
    assert last == pytest.approx(max(one.finished_ns for one in apart), rel=0.02)
    assert last >= 100 * nbytes / GIB * NS_PER_SEC
    mean, mean_apart = (sum(one.finished_ns for one in done) / 100 for done in (together, apart))
    assert mean == pytest.approx(mean_apart, rel=0.02)


def side(abreast: int) -> dict[str, Any]:
    return {"read_side_by_side": abreast, "write_side_by_side": abreast}


def test_pieces_side_by_side_end_together() -> None:
    """A device may serve what is in flight in turns of small requests: nobody is done before the others."""
    pieces = reads(*[4 * MIB] * 8)
    in_line, abreast = (served(lanes(32, **side(way)), pieces) for way in (0, 1))
    assert seconds(in_line) == [pytest.approx((number + 1) / 256, abs=1e-6) for number in range(8)]
    assert seconds(abreast) == [pytest.approx(8 / 256, abs=1e-6)] * 8


def test_who_comes_later_is_as_fast_side_by_side() -> None:
    """Two lanes share from the second's beginning on: the first has half of its piece left by then."""
    asked: list[Asked] = [(Verb.READ, 4 * MIB, 0), (Verb.READ, 4 * MIB, NS_PER_SEC // 512)]
    done = served(lanes(32, **side(1)), asked)
    assert seconds(done) == [pytest.approx(3 / 512, abs=1e-6), pytest.approx(4 / 512, abs=1e-6)]


def test_a_short_piece_takes_as_long_as_the_long_ones_beside_it() -> None:
    done = served(lanes(32, **side(1)), reads(4 * MIB, MIB // 4, 4 * MIB))
    assert seconds(done) == [pytest.approx((4 + 0.25 + 4) / 1024, abs=1e-6)] * 3


LOADS = st.lists(
    st.tuples(
        st.sampled_from([Verb.READ, Verb.WRITE]),
        st.integers(1, 60 * MIB),
        st.integers(1000, NS_PER_SEC // 5),
    ),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=150)
@given(
    asked=LOADS,
    count=st.sampled_from([1, 8, 32]),
    duplex=st.sampled_from([0.0, 1.0]),
    open_us=st.sampled_from([0, 300]),
    abreast=st.sampled_from([0, 1]),
)
def test_the_model_agrees_with_threads_that_move_piece_after_piece(
    asked: Any, count: int, duplex: float, open_us: float, abreast: int
) -> None:
    """Stated tolerance, in turns (the time of all bytes that lanes can have in flight): entries end within
    two turns of where threads end them on the average, and so does the last one. One entry alone may be
    further off, where a moment decides which of two gets a lane."""
    more: dict[str, Any] = {"read_duplex": duplex, "write_duplex": duplex, **side(abreast)}
    model = lanes(count, read_open_us=open_us, write_open_us=open_us, **more)
    done = served(model, asked)
    entries, at_ns = [], 0
    for verb, nbytes, gap_ns in asked:
        at_ns += gap_ns
        entries.append(piecewise.Entry(verb, nbytes, at_ns))
    piecewise.simulate(model, entries, 4 * MIB)
    turn_ns = min(count, 4 * len(asked)) * 4 * MIB / GIB * NS_PER_SEC
    off_ns = [abs(one.finished_ns - entry.done_ns) for one, entry in zip(done, entries, strict=True)]
    assert sum(off_ns) / len(off_ns) <= 2 * turn_ns + 1000 * open_us
    last, other = max(one.finished_ns for one in done), max(entry.done_ns for entry in entries)
    assert last == pytest.approx(other, abs=2 * turn_ns + 1000 * open_us)


@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("duplex", [0.0, 1.0])
@pytest.mark.parametrize("load", [0.5, 0.95])
@pytest.mark.parametrize("abreast", [0, 1])
def test_latencies_under_load_are_those_of_threads(
    count: int, duplex: float, load: float, abreast: int
) -> None:
    """p50 and p95 of a thousand entries of 1 to 100 MiB: within 5 % at half load, 10 % near full load."""
    rng = random.Random(7)
    asked: list[Asked] = []
    for _ in range(1000):
        verb = Verb.READ if rng.random() < 0.7 else Verb.WRITE
        share = (0.7 if duplex else 1.0) / load
        asked.append(
            (verb, rng.randint(MIB, 100 * MIB), round(rng.expovariate(1 / share) * 50 * MIB / GIB * 1e9))
        )
    more: dict[str, Any] = {"read_duplex": duplex, "write_duplex": duplex, **side(abreast)}
    model = lanes(count, read_open_us=100, write_open_us=300, **more)
    done = sorted(one.total_ns for one in served(model, asked))
    entries, at_ns = [], 0
    for verb, nbytes, gap_ns in asked:
        at_ns += gap_ns
        entries.append(piecewise.Entry(verb, nbytes, at_ns))
    piecewise.simulate(model, entries, 4 * MIB)
    real = sorted(entry.done_ns - entry.at_ns for entry in entries)
    for share in (500, 950):
        assert done[share] == pytest.approx(real[share], rel=0.05 if load < 0.9 else 0.10)


@settings(deadline=None, max_examples=100)
@given(
    asked=LOADS,
    count=st.sampled_from([1, 3, 8, 32]),
    duplex=st.sampled_from([0.0, 0.5, 1.0]),
    abreast=st.sampled_from([0, 1]),
)
def test_it_is_never_faster_than_its_limits_and_takes_entries_up_in_order(
    asked: Any, count: int, duplex: float, abreast: int
) -> None:
    done = served(lanes(count, read_duplex=duplex, write_duplex=duplex, **side(abreast)), asked)
    for verb in (Verb.READ, Verb.WRITE):
        mine = [(one, nbytes) for one, (its, nbytes, _gap) in zip(done, asked, strict=True) if its is verb]
        for one, nbytes in mine:
            assert one.finished_ns - one.started_ns >= nbytes / GIB * NS_PER_SEC - 2
        for last, _ in mine:
            first_ns = min((one.submitted_ns for one, _ in mine), default=0)
            moved = sum(nbytes for one, nbytes in mine if one.finished_ns <= last.finished_ns)
            assert moved / GIB * NS_PER_SEC <= last.finished_ns - first_ns + 10
    starts = [one.started_ns for one in done]
    assert starts == sorted(starts)


@settings(deadline=None, max_examples=100)
@given(asked=LOADS, count=st.sampled_from([4, 8, 32]), abreast=st.sampled_from([0, 1]))
def test_the_device_is_never_idle_while_there_is_work(asked: Any, count: int, abreast: int) -> None:
    """Work is conserved: the last one ends when a single server fed the same work would end."""
    done = served(lanes(count, **side(abreast)), asked)
    free_ns = 0.0
    for one, (_verb, nbytes, _gap) in zip(done, asked, strict=True):
        free_ns = max(free_ns, one.submitted_ns) + nbytes / GIB * NS_PER_SEC
    assert max(one.finished_ns for one in done) == pytest.approx(free_ns, abs=100)
