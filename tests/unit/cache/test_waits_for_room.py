"""How long puts waited for room is told to the recorder, by the put (C4)."""

import asyncio
from typing import Any

from kvspill.cache.cache import Cache
from kvspill.records import NS_PER_SEC, Purpose
from unit.cache.play import KIB4, play, put


def waits_of(script: Any, **given: Any) -> list[tuple[int, int]]:
    """The seconds and writes of each wait for room in a script that pins all there is for 5 s."""
    found: list[tuple[int, int]] = []

    async def watched(cache: Cache, oracle: Any) -> None:
        oracle.room_wait = lambda from_ns, to_ns, writes: found.append(
            (round((to_ns - from_ns) / NS_PER_SEC), writes)
        )
        pinned = await put(cache, "pinned", 10, pin=True)
        assert not found
        waiting = asyncio.ensure_future(script(cache))
        await asyncio.sleep(5)
        cache.release(pinned.entries)
        await waiting

    play(watched, sizes=(10,), **given)
    return found


def test_c4_a_put_that_stands_in_line_waits_for_room_as_the_one_before_it_does() -> None:
    async def two(cache: Cache) -> None:
        first = asyncio.ensure_future(put(cache, "first", 5))
        await asyncio.sleep(2)
        await put(cache, "second", 5)
        await first

    assert sorted(waits_of(two)) == [(3, 1), (5, 1)]


def test_c4_e12_a_batch_waits_once_and_is_as_many_writes_as_it_has_blocks() -> None:
    async def batch(cache: Cache) -> None:
        await cache.put([*"wxyz"], KIB4, Purpose.PREFILL)

    # No more than a quarter of the tier is booked at a time.
    assert waits_of(batch) == [(5, 2)]


def test_c4_a_put_for_which_there_is_room_waits_for_none() -> None:
    async def alone(cache: Cache, oracle: Any) -> list[Any]:
        found: list[Any] = []
        oracle.room_wait = lambda *given: found.append(given)
        for key in "abc":
            await put(cache, key, 5)
        return found

    assert play(alone, sizes=(10,))[2] == []


def test_c4_a_wait_that_the_end_cuts_off_counts_until_then() -> None:
    async def cut(cache: Cache) -> None:
        waiting = asyncio.ensure_future(put(cache, "late", 5))
        await asyncio.sleep(3)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    assert waits_of(cut) == [(3, 1)]
