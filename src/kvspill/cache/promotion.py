"""Copies in DRAM of blocks that live on the last tier."""

from collections.abc import Sequence

from kvspill.cache.core import Core
from kvspill.cache.options import Put
from kvspill.cache.room import Room
from kvspill.cache.tier import Entry, State, TierState
from kvspill.records import Purpose, Tier


class Promotion:
    """Copies entries upward, as far as room can be made."""

    def __init__(self, core: Core, room: Room):
        self._core = core
        self._room = room
        self._dram = next((tier for tier in core.tiers[:-1] if tier.name is Tier.CPU), None)

    async def promote(self, keys: Sequence[str]) -> int:
        """Copy entries of the last tier into DRAM; returns how many."""
        dram, promoted = self._dram, 0
        if dram is None:
            return 0
        homes = self._core.homes
        todo = [key for key in keys if self._promotable(key)]
        while todo:
            home = homes.get(todo[0])
            if home is None:
                todo = todo[1:]
                continue
            stored_bytes = dram.backend.stored_bytes(home.ref.nbytes)
            if stored_bytes > dram.usable_bytes:
                return promoted
            count = self._room.batch_size(dram, len(todo), stored_bytes)
            # What gets lost here fails no request: none waits for a promotion.
            if not await self._room.make(dram, count, stored_bytes, []):
                return promoted
            # While room was made, entries may have gone, moved or been copied by another.
            going = [homes[key] for key in todo[:count] if self._promotable(key)]
            going = [home for home in going if dram.backend.stored_bytes(home.ref.nbytes) == stored_bytes]
            dram.take(-(count - len(going)) * stored_bytes)
            todo = todo[count:]
            if going:
                put = await self._copy(dram, going, stored_bytes)
                promoted += len(put.entries)
                if put.cancelled:
                    return promoted
        return promoted

    def _promotable(self, key: str) -> bool:
        home = self._core.homes.get(key)
        return (
            home is not None
            and home.state is State.READY
            and home.tier is self._core.last
            and key not in self._core.copies
        )

    async def _copy(self, dram: TierState, homes: Sequence[Entry], stored_bytes: int) -> Put:
        core, put = self._core, Put()
        copies = []
        for home in homes:
            if home.claim is not None:
                home.tier.rescue(home)
                home.tier.policy.touch(home.ref.key)
            home.tier.pin(home)
            copies.append(
                Entry(
                    home.ref,
                    dram,
                    stored_bytes,
                    pins=1,
                    parent=home.parent,
                    tokens=home.tokens,
                    uses=home.uses,
                )
            )
            core.copies[home.ref.key] = copies[-1]
        try:
            core.wrote(dram, copies, await core.write(dram, copies), Purpose.PROMOTION, put)
        finally:
            for home in homes:
                core.release(home)
        return put
