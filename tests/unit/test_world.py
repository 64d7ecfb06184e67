"""Time and randomness: virtual time jumps, a deadlock is an exception, streams are independent."""

import asyncio
import hashlib
import random
import time
from typing import Any

import pytest

from kvspill.records import NS_PER_SEC
from kvspill.world import Deadlock, World, run_real, run_virtual


def test_an_hour_of_virtual_sleep_takes_no_time_and_is_exact() -> None:
    async def main(world: World) -> Any:
        await world.sleep_ns(3600 * NS_PER_SEC)
        return world.now_ns()

    before = time.monotonic()
    assert run_virtual(main, seed=1) == 3600 * NS_PER_SEC
    assert time.monotonic() - before < 60


def test_sleepers_wake_in_the_order_of_their_times() -> None:
    async def main(world: World) -> Any:
        woken = []

        async def sleeper(duration_ns: int) -> None:
            await world.sleep_ns(duration_ns)
            woken.append((duration_ns, world.now_ns()))

        await asyncio.gather(*(sleeper(n) for n in (7, 3, 5_000_000_001, 1)))
        return woken

    assert run_virtual(main, seed=1) == [(n, n) for n in (1, 3, 7, 5_000_000_001)]


def test_waiting_for_what_never_comes_is_an_exception() -> None:
    async def main(_world: World) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_virtual(main, seed=1)


@pytest.mark.parametrize("run", [run_real, run_virtual])
def test_a_callback_without_memory_ends_what_may_wait_for_it(run: Any) -> None:
    ended = []

    def starve() -> None:
        raise MemoryError

    async def main(_world: World) -> None:
        asyncio.get_running_loop().call_soon(starve)
        try:
            # Somebody else's timer, so that virtual time is no deadlock.
            await asyncio.sleep(5)
        finally:
            ended.append("in order")

    with pytest.raises(MemoryError):
        run(main, seed=1)
    assert ended == ["in order"]


def test_threads_are_refused_in_virtual_time() -> None:
    """E8: an executor call raises."""

    async def main(_world: World) -> None:
        await asyncio.to_thread(time.monotonic)

    with pytest.raises(RuntimeError, match="no threads in virtual time"):
        run_virtual(main, seed=1)


def test_a_stream_depends_on_its_names_alone() -> None:
    world = World(42)
    first = [world.rng("user", 17).random() for _ in range(2)]
    world.rng("user", 18).random()
    assert first[0] == first[1]
    assert World(42).rng("user", 17).random() == first[0]
    seeded = hashlib.sha256(b"42\x1fuser\x1f17").digest()
    assert first[0] == random.Random(int.from_bytes(seeded, "big")).random()
    assert len({World(seed).rng(*names).random() for seed in (1, 2) for names in [("a", 1), ("a1",)]}) == 4


@pytest.mark.real
def test_the_real_world_sleeps_on_the_real_clock() -> None:
    async def main(world: World) -> Any:
        before = world.now_ns()
        await world.sleep_until_ns(before + 5_000_000)
        return world.now_ns() - before

    assert run_real(main, seed=1) >= 5_000_000
