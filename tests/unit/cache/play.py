"""A cache of a few blocks in virtual time, and the words in which its rules are tested."""

from typing import Any

from kvspill.cache.cache import Cache
from kvspill.records import HitType, Purpose
from kvspill.world import World, run_virtual
from sim.harness import make_cache

KIB4 = 4096
HISTORY = (Purpose.HISTORY, HitType.MULTI_TURN)


def play(script: Any, sizes: Any = (10, 10, 10), **options: Any) -> Any:
    """Run a script over a cache whose tiers hold so many blocks of 4 KiB."""

    async def main(world: World) -> Any:
        cache, oracle = make_cache(world, [blocks * KIB4 for blocks in sizes], **options)
        result = await script(cache, oracle)
        await cache.drain()
        return cache, oracle, result

    return run_virtual(main, seed=1)


async def put(cache: Cache, key: str, blocks: Any, pin: bool = False) -> Any:
    return await cache.put([key], blocks * KIB4, Purpose.PREFILL, pin=pin)


async def get(cache: Cache, key: str) -> Any:
    return (await cache.get([key], [HISTORY]))[0]


def where(cache: Cache, key: str) -> Any:
    entry = cache.find(key)
    return None if entry is None else entry.tier.name
