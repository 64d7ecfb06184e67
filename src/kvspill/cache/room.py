"""Room for new entries: which tier takes them, and who has to make place (C1, C4)."""

from kvspill.cache.core import Core
from kvspill.cache.demotion import Demotion
from kvspill.cache.options import CacheOptions
from kvspill.cache.tier import TierState

_BATCH_SHARE = 4
"""A batch takes at most this part of a tier at once, so that one request cannot empty it."""


class Room:
    """Books bytes in the tiers' ledgers."""

    def __init__(self, core: Core, options: CacheOptions):
        self._core = core
        self._waterfall = options.waterfall
        self._demotion = Demotion(core, self.place, options)

    def misfit(self, nbytes: int) -> str:
        """Why an entry of nbytes was not placed."""
        fits = any(tier.backend.stored_bytes(nbytes) <= tier.usable_bytes for tier in self._core.tiers)
        return "no_space" if fits else "too_large"

    async def place(
        self, wanted: int, nbytes: int, level: int, lost: list[str]
    ) -> tuple[TierState | None, int]:
        """Book room for some of the wanted entries in the fastest tier from `level` on that can (C1).

        lost: gets the error of each entry that the way down has cost.
        """
        last = self._core.last
        for tier in self._core.tiers[level:]:
            stored_bytes = tier.backend.stored_bytes(nbytes)
            if stored_bytes > tier.usable_bytes:
                continue
            if self._waterfall or tier is last:
                count = self.batch_size(tier, wanted, stored_bytes)
                if await self.make(tier, count, stored_bytes, lost):
                    return tier, count
                count = min(count, tier.free_bytes // stored_bytes)
                if count > 0 and await self.make(tier, count, stored_bytes, lost):
                    return tier, count
            else:
                count = min(wanted, tier.free_bytes // stored_bytes)
                if count > 0:
                    tier.take(count * stored_bytes)
                    return tier, count
        return None, 0

    def batch_size(self, tier: TierState, wanted: int, stored_bytes: int) -> int:
        return min(wanted, max(1, tier.usable_bytes // _BATCH_SHARE // stored_bytes))

    async def make(self, tier: TierState, count: int, each_bytes: int, lost: list[str]) -> bool:
        """Book room for so many, pushing the coldest idle entries out; False where that can't free enough.

        What is free is booked at once and the bytes of pushed-out entries stay booked for us, so
        nobody can take them in between. Nobody stands in line with bytes in hand, only the last
        tier waits, and only for bytes that somebody will surely release: holders of pins never wait
        for space. So there is no deadlock (C4).
        """
        stored_bytes, crowded, told = count * each_bytes, False, 0
        while True:
            # Nobody keeps the turn but who waits for room: to stand behind that one is to wait for room, too.
            since_ns, waits = self._core.clock_ns(), tier.turn.locked()
            try:
                async with tier.turn:
                    while True:
                        short_bytes = stored_bytes - tier.free_bytes
                        if short_bytes <= 0:
                            tier.take(stored_bytes)
                            return True
                        victims = tier.claim_victims(short_bytes)
                        if victims is not None:
                            break
                        if tier is not self._core.last or tier.busy_bytes == 0:
                            return False
                        if not crowded:
                            tier.crowded_puts += count
                        crowded = waits = True
                        await tier.wait_for_change()
                    held_bytes = tier.free_bytes
                    tier.take(held_bytes)
            finally:
                if waits:
                    self._core.reports.waited_for_room(since_ns, count - told)
                    told = count
            held_bytes += await self._demotion.push_out(victims, lost)
            if held_bytes >= stored_bytes:
                tier.take(stored_bytes - held_bytes)
                return True
            # A victim was rescued by a hit, or its delete failed: back to the end of the line.
            tier.take(-held_bytes)
