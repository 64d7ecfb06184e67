"""What a failed write leaves on the device stays in the ledger (C7)."""

from dataclasses import replace
from typing import Any

import pytest

from kvspill.cache.tier import TierState
from kvspill.records import Purpose, Tier
from kvspill.world import World, run_virtual
from sim.harness import make_cache

KIB4 = 4096


def let_writes_fail(tier: TierState, *, keeps_room: bool) -> None:
    backend = tier.backend
    write = backend.write

    async def failing_write(batch: Any) -> Any:
        completions = await write(batch)
        await backend.delete([item.ref for item in batch])
        return [replace(done, error="EIO", keeps_room=keeps_room) for done in completions]

    backend.write = failing_write  # type: ignore[method-assign]


@pytest.mark.parametrize("keeps_room", [False, True])
@pytest.mark.parametrize("demoted", [False, True])
def test_c7_a_failed_write_frees_its_room_only_where_what_it_wrote_was_removed(
    demoted: bool, keeps_room: bool
) -> None:
    async def main(world: World) -> TierState:
        cache, _oracle = make_cache(world, [10 * KIB4] * 3)
        storage: TierState = cache.tiers[-1]
        assert storage.name is Tier.STORAGE
        let_writes_fail(storage, keeps_room=keeps_room)
        # The third pushes the first one through the second tier to the last.
        for key in "abc" if demoted else "a":
            await cache.put([key], 8 * KIB4, Purpose.PREFILL, level=0 if demoted else 2)
        await cache.drain()
        return storage

    storage = run_virtual(main, seed=1)
    kept_bytes = 8 * KIB4 if keeps_room else 0
    assert (storage.used_bytes, storage.lost_bytes) == (kept_bytes, kept_bytes)
