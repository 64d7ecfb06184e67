"""What a demotion counts, and who is told of one that fails: C6."""

import asyncio
from typing import Any, cast

import pytest

from kvspill.cache.cache import Cache
from kvspill.cache.options import CacheOptions
from kvspill.records import Outcome, Purpose, Tier, Verb
from sim.faults import FaultyBackend
from sim.harness import Oracle, check_quiet
from unit.cache.play import KIB4, get, play, put, where


def test_c6_a_demotion_counts_its_bytes_in_both_tiers() -> None:
    async def script(cache: Cache, _oracle: Any) -> None:
        await put(cache, "a", 10)
        await put(cache, "b", 10)

    _cache, oracle, _ = play(script)
    moved = {
        (op.tier, op.verb): op.nbytes
        for op in oracle.ops
        if op.purpose is Purpose.DEMOTION and op.verb is not Verb.DELETE
    }
    assert moved == {(Tier.GPU, Verb.READ): 10 * KIB4, (Tier.CPU, Verb.WRITE): 10 * KIB4}


@pytest.mark.parametrize("verb", ["read", "write"])
def test_c6_a_demotion_that_fails_is_told_to_the_put_that_waited_for_it_and_is_no_eviction(verb: str) -> None:
    async def script(cache: Cache, oracle: Oracle) -> Any:
        await put(cache, "a", 10)
        failing = cache.tiers[0 if verb == "read" else 1].backend
        cast(FaultyBackend, failing).probability[verb] = 1.0
        second = await put(cache, "b", 10)
        await cache.drain()
        check_quiet(cache, oracle)
        return second, where(cache, "a"), where(cache, "b")

    _cache, oracle, (second, a_is_in, b_is_in) = play(script, sizes=(10, 100))
    assert (second.failure, second.demotion_error) == (None, "EIO")
    assert (a_is_in, b_is_in) == (None, Tier.CPU)
    assert oracle.evictions == []


def test_c6_what_two_tiers_down_lost_is_told_to_the_put_that_set_it_off() -> None:
    async def script(cache: Cache, _oracle: Oracle) -> Any:
        for key in "ab":
            await put(cache, key, 10)
        cast(FaultyBackend, cache.tiers[2].backend).probability["write"] = 1.0
        third = await put(cache, "c", 10)
        return third.lost, [where(cache, key) for key in "abc"]

    assert play(script)[2] == (["EIO"], [None, Tier.CPU, Tier.GPU])


@pytest.mark.parametrize("in_blocks", [False, True], ids=["entries", "blocks"])
def test_c6_every_entry_of_a_batch_that_is_lost_is_told(in_blocks: bool) -> None:
    async def script(cache: Cache, oracle: Oracle) -> Any:
        await cache.put([*"abcd"], 2 * KIB4, Purpose.PREFILL)
        cast(FaultyBackend, cache.tiers[1].backend).probability["write"] = 1.0
        answer = await put(cache, "new", 10)
        return answer.lost, oracle.evictions

    options = CacheOptions(in_blocks=in_blocks)
    assert play(script, sizes=(10, 100), options=options)[2] == (["EIO"] * 4, [])


@pytest.mark.parametrize("in_blocks", [False, True], ids=["entries", "blocks"])
def test_c6_a_demotion_that_the_end_of_the_run_cut_off_is_no_eviction(in_blocks: bool) -> None:
    """It moved nothing to its end; what one kind of cache counted and the other did not."""

    async def script(cache: Cache, oracle: Oracle) -> list[str | None]:
        await cache.put(["a", "b"], 5 * KIB4, Purpose.PREFILL)
        waiting = asyncio.ensure_future(put(cache, "new", 10))
        await asyncio.sleep(0)
        await cache.stop()
        assert (await waiting).demotion_error is None
        return [op.completion.error for op in oracle.ops if op.purpose is Purpose.DEMOTION]

    _cache, oracle, errors = play(script, sizes=(10, 20), options=CacheOptions(in_blocks=in_blocks))
    assert "cancelled" in errors
    assert oracle.evictions == []


def test_a_hit_is_served_where_the_entry_is_while_its_demotion_waits_for_room() -> None:
    """C4: the put that would demote it holds nothing, so the reader need not wait for it."""

    async def script(cache: Cache, oracle: Any) -> Any:
        blocker = await put(cache, "blocker", 15, pin=True)
        await put(cache, "hot", 10)
        waiting = asyncio.ensure_future(put(cache, "new", 10))
        await asyncio.sleep(1)
        assert not waiting.done()
        outcome = await get(cache, "hot")
        served_from = oracle.lookups[-1].tier
        cache.release(blocker.entries)
        await waiting
        return outcome, served_from, where(cache, "hot"), where(cache, "new")

    result = play(script, sizes=(10, 20))[2]
    assert result == (Outcome.HIT, Tier.CPU, Tier.STORAGE, Tier.CPU)
