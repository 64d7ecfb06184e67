"""The rules of the cache, one by one (C1-C7), in virtual time."""

import asyncio
from typing import Any, cast

import pytest

from kvspill.cache.cache import Cache
from kvspill.cache.options import CacheOptions
from kvspill.records import Eviction, OpRecord, Outcome, Purpose, Tier, Verb
from kvspill.run.build import usable_bytes
from sim.faults import FaultyBackend
from sim.harness import POLICY_NAMES, Oracle, check_quiet, make_policy
from unit.cache.play import HISTORY, KIB4, get, play, put, where


@pytest.mark.parametrize(("tier", "usable"), [(Tier.GPU, 80), (Tier.CPU, 80), (Tier.STORAGE, 100)])
def test_c1_a_memory_tier_is_usable_to_80_percent_and_storage_whole(tier: Any, usable: int) -> None:
    assert usable_bytes(tier, 100) == usable


def test_c1_waterfall_demotes_the_coldest_one_tier_down() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        for key in "abc":
            await put(cache, key, 5)
        assert await get(cache, "b") is Outcome.HIT
        return [where(cache, key) for key in "abc"]

    _cache, oracle, places = play(script)
    assert places == [Tier.CPU, Tier.GPU, Tier.GPU]
    demotions = [(op.tier, op.verb) for op in oracle.ops if op.purpose is Purpose.DEMOTION]
    assert demotions == [(Tier.GPU, Verb.READ), (Tier.CPU, Verb.WRITE), (Tier.GPU, Verb.DELETE)]


def test_c1_a_demotion_pushes_on_through_full_tiers_and_the_last_drops() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        for key in "abcd":
            await put(cache, key, 10)
        return [where(cache, key) for key in "abcd"]

    _cache, oracle, places = play(script)
    assert places == [None, Tier.STORAGE, Tier.CPU, Tier.GPU]
    assert [eviction.key for eviction in oracle.evictions if eviction.below is None] == ["a"]


def test_c1_an_entry_too_large_for_a_tier_takes_the_next_and_disturbs_nobody() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        await put(cache, "small", 2)
        await put(cache, "large", 15)
        return where(cache, "small"), where(cache, "large")

    assert play(script, sizes=(4, 10, 20))[2] == (Tier.GPU, Tier.STORAGE)


def test_c1_larger_than_the_last_tier_fails() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        return await put(cache, "huge", 11)

    assert play(script)[2].failure == "too_large"


def test_c1_spill_takes_the_fastest_tier_with_room_and_demotes_nothing() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        for key in "abcd":
            await put(cache, key, 6)
        return [where(cache, key) for key in "abcd"]

    _cache, oracle, places = play(script, options=CacheOptions(waterfall=False))
    assert places == [Tier.GPU, Tier.CPU, None, Tier.STORAGE]
    assert not [op for op in oracle.ops if op.purpose is Purpose.DEMOTION]


def test_c1_a_hit_does_not_promote() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        await put(cache, "a", 10)
        await put(cache, "b", 10)
        await get(cache, "a")
        return where(cache, "a")

    assert play(script)[2] is Tier.CPU


@pytest.mark.parametrize("purpose", [Purpose.PROMPT, Purpose.RAG])
def test_c1_a_prompt_seen_for_the_first_time_is_a_new_entry(purpose: Any) -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        await cache.put(["prompt"], KIB4, purpose)
        return where(cache, "prompt")

    assert play(script)[2] is Tier.GPU


def test_c1_a_prompt_that_two_write_for_the_first_time_at_once_is_new_to_both() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        await asyncio.gather(*(cache.put(["prompt"], KIB4, Purpose.PROMPT) for _ in range(2)))
        return where(cache, "prompt")

    _cache, oracle, place = play(script)
    assert place is Tier.GPU
    assert {op.tier for op in oracle.ops} == {Tier.GPU}


def test_c3_who_overwrites_a_prompt_that_another_has_just_written_leaves_it_where_it_is() -> None:
    """Both missed it; the one that waited for a slot finds it there."""

    async def script(cache: Cache, _oracle: Any) -> Any:
        async def two_miss_it() -> Any:
            await asyncio.gather(*(cache.put(["prompt"], 5 * KIB4, Purpose.PROMPT) for _ in range(2)))
            return where(cache, "prompt")

        new = await two_miss_it()
        for key in "abc":
            await put(cache, key, 10)
        assert where(cache, "prompt") is None
        return new, await two_miss_it()

    options = CacheOptions(max_concurrent_allocs=1)
    assert play(script, options=options)[2] == (Tier.GPU, Tier.STORAGE)


@pytest.mark.parametrize("purpose", [Purpose.PROMPT, Purpose.RAG, Purpose.HISTORY])
def test_c3_an_evicted_entry_is_rebuilt_where_it_fell_out(purpose: Any) -> None:
    """Nothing promotes an entry, being evicted neither: a smaller capacity must not make it faster."""

    async def script(cache: Cache, _oracle: Any) -> Any:
        await cache.put(["old"], 10 * KIB4, purpose)
        for key in "abc":
            await put(cache, key, 10)
        assert where(cache, "old") is None
        await cache.put(["old"], 10 * KIB4, purpose)
        return [where(cache, key) for key in ("c", "b", "old", "a")]

    if purpose is Purpose.HISTORY:
        # A turn is written for itself before it is anybody's history.
        assert play(lambda cache, _oracle: put(cache, "turn", 1))[0].find("turn").tier.name is Tier.GPU
    assert play(script)[2] == [Tier.GPU, Tier.CPU, Tier.STORAGE, None]


def test_c3_a_pinned_entry_stays_and_the_put_takes_the_next_tier() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        pinned = await put(cache, "a", 10, pin=True)
        await put(cache, "b", 10)
        places = where(cache, "a"), where(cache, "b")
        cache.release(pinned.entries)
        return places

    assert play(script)[2] == (Tier.GPU, Tier.CPU)


def test_c3_putting_an_existing_key_overwrites_it_and_frees_its_bytes() -> None:
    async def script(cache: Cache, oracle: Any) -> Any:
        await put(cache, "a", 6)
        await put(cache, "a", 3)
        await cache.drain()
        check_quiet(cache, oracle)
        return cache.tiers[0].used_bytes

    assert play(script)[2] == 3 * KIB4


def test_c4_in_the_last_tier_a_put_waits_for_a_pin_to_go() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        pinned = await put(cache, "a", 10, pin=True)
        waiting = asyncio.ensure_future(put(cache, "b", 10))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert cache.tiers[0].crowded_puts == 1
        cache.release(pinned.entries)
        return (await waiting).failure is None, where(cache, "a"), where(cache, "b")

    assert play(script, sizes=(10,))[2] == (True, None, Tier.STORAGE)


def test_c4_e12_a_batch_that_waits_for_room_is_as_many_writes_as_it_has_blocks() -> None:
    async def script(cache: Cache, _oracle: Any) -> int:
        pinned = await put(cache, "a", 20, pin=True)
        waiting = asyncio.ensure_future(cache.put([*"wxyz"], KIB4, Purpose.PREFILL))
        await asyncio.sleep(1)
        crowded = cache.tiers[0].crowded_puts
        cache.release(pinned.entries)
        await waiting
        return crowded

    assert play(script, sizes=(20,), options=CacheOptions(in_blocks=True))[2] == 4


def test_c4_reservations_are_first_come_first_served() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        pinned = await put(cache, "a", 10, pin=True)
        done = []

        async def writer(key: str, blocks: Any) -> None:
            await put(cache, key, blocks)
            done.append(key)

        tasks = [asyncio.ensure_future(writer(key, blocks)) for key, blocks in (("big", 10), ("small", 1))]
        await asyncio.sleep(1)
        cache.release(pinned.entries)
        await asyncio.gather(*tasks)
        return done

    assert play(script, sizes=(10,))[2] == ["big", "small"]


def test_c5_allocations_are_bounded_from_reservation_to_the_end_of_the_write() -> None:
    async def script(cache: Cache, oracle: Any) -> Any:
        await asyncio.gather(*(put(cache, f"k{n}", 2) for n in range(6)))
        return [op.completion for op in oracle.ops if op.verb is Verb.WRITE]

    writes = play(script, sizes=(100,), options=CacheOptions(max_concurrent_allocs=2))[2]
    for write in writes:
        others = [one for one in writes if one.submitted_ns < write.finished_ns <= one.finished_ns]
        assert len(others) <= 2


def test_e12_equal_blocks_of_a_batch_are_one_operation_from_placement_to_record() -> None:
    class Rows(Oracle):
        def op(self, record: OpRecord) -> None:
            self.ops.append(record)

        def eviction(self, eviction: Eviction) -> None:
            self.evictions.append(eviction)

    async def script(cache: Cache, _oracle: Oracle) -> None:
        await cache.put([*"abcdefgh"], 2 * KIB4, Purpose.PREFILL)
        await cache.put(["x", "y"], 2 * KIB4, Purpose.PREFILL)

    _cache, oracle, _ = play(script, sizes=(16, 40), options=CacheOptions(in_blocks=True), oracle=Rows())
    rows = [(op.tier, op.verb, op.purpose, op.times) for op in oracle.ops]
    assert rows[-4:] == [
        (Tier.CPU, Verb.READ, Purpose.DEMOTION, 2),
        (Tier.STORAGE, Verb.WRITE, Purpose.DEMOTION, 2),
        (Tier.CPU, Verb.DELETE, Purpose.DEMOTION, 2),
        (Tier.CPU, Verb.WRITE, Purpose.PREFILL, 2),
    ]
    (eviction,) = oracle.evictions
    assert [one.key for one in eviction.each()] == ["b", "a"]


def test_a_batch_that_is_read_has_an_outcome_for_each_key() -> None:
    async def script(cache: Cache, _oracle: Oracle) -> list[Outcome]:
        await cache.put(["a", "b"], KIB4, Purpose.PREFILL)
        return await cache.get(["a", "x", "b"], [HISTORY] * 3)

    assert play(script)[2] == [Outcome.HIT, Outcome.MISS, Outcome.HIT]


def test_c3_a_batch_overwrites_what_is_there_or_skips_it_where_asked() -> None:
    async def script(cache: Cache, oracle: Oracle) -> list[int]:
        for replace in (True, True, False):
            await cache.put(["a", "b", "c"], 3 * KIB4, Purpose.PREFILL, replace=replace)
        await cache.drain()
        check_quiet(cache, oracle)
        return [entry.ref.generation for key in "abc" if (entry := cache.find(key)) is not None]

    assert play(script, sizes=(10,))[2] == [4, 5, 6]


def test_c7_the_ledger_counts_padded_bytes_and_the_metrics_logical_ones() -> None:
    async def script(cache: Cache, _oracle: Any) -> Any:
        await cache.put(["a"], KIB4 + 1, Purpose.PREFILL)
        return cache.tiers[0].used_bytes

    _cache, oracle, used = play(script)
    assert used == 2 * KIB4
    assert (oracle.ops[0].nbytes, oracle.ops[0].stored_bytes) == (KIB4 + 1, 2 * KIB4)


def test_a_failed_read_is_an_error_and_loses_the_entry() -> None:
    """S5: neither hit nor miss; afterwards the key is a miss."""

    async def script(cache: Cache, _oracle: Any) -> Any:
        await put(cache, "a", 1)
        cast(FaultyBackend, cache.tiers[0].backend).probability["read"] = 1.0
        return await get(cache, "a"), await get(cache, "a")

    assert play(script)[2] == (Outcome.ERROR, Outcome.MISS)


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_policy_gives_up_only_what_may_go(name: Any) -> None:
    policy = make_policy(name, 100)
    for key in "abcd":
        policy.insert(key, 10)
    policy.touch("a")
    assert policy.victim(lambda key: key == "c") == (None if name == "none" else "c")
    assert policy.victim(lambda _key: False) is None
    policy.remove("c", evicted=True)
    assert len(policy) == 3


@pytest.mark.parametrize(
    ("name", "order"), [("lru", "bcda"), ("fifo", "abcd"), ("lfu", "bcda"), ("s3-fifo", "bcad")]
)
def test_policies_differ_in_what_is_coldest(name: str, order: str) -> None:
    """`a` came first and was used since."""
    policy = make_policy(name, 1000)
    for new in "abcd":
        policy.insert(new, 100)
    policy.touch("a")
    left = []
    while (key := policy.victim(lambda _key: True)) is not None:
        policy.remove(key, evicted=True)
        left.append(key)
    assert "".join(left) == order
