"""What the parts of a cache share: its tiers, which entry a key means, and how entries begin and end."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kvspill.cache.flight import InFlight
from kvspill.cache.options import Put
from kvspill.cache.reports import Reports
from kvspill.cache.tier import Entry, State, TierState
from kvspill.records import CANCELLED, Completion, Purpose, Verb
from kvspill.storage.base import Source, WriteItem


class Core:
    """Entries by their keys. An entry on the last tier, its home, may have a copy in DRAM.

    The copy is a second entry of the same object: losing it costs a delete but no demotion, and a copy
    whose home is lost becomes the home.
    """

    def __init__(self, tiers: Sequence[TierState], reports: Reports, clock_ns: Callable[[], int]):
        assert tiers, "a cache needs at least one tier"
        self.tiers = tuple(tiers)
        self.last = self.tiers[-1]
        self.reports = reports
        self.clock_ns = clock_ns
        self.homes: dict[str, Entry] = {}
        self.copies: dict[str, Entry] = {}
        self.in_flight = InFlight(clock_ns)
        self.background: set[asyncio.Task[None]] = set()
        """Deletes that nobody waits for."""

    def is_copy(self, entry: Entry) -> bool:
        return self.copies.get(entry.ref.key) is entry

    def forget(self, entry: Entry) -> None:
        """The entry cannot be found any more."""
        key = entry.ref.key
        copy = self.copies.get(key)
        if copy is entry:
            del self.copies[key]
            return
        if self.homes.get(key) is entry:
            del self.homes[key]
        if copy is not None and key not in self.homes:
            del self.copies[key]
            self.homes[key] = copy

    # The backends

    async def read(self, tier: TierState, entries: Sequence[Entry]) -> list[Completion]:
        with self.in_flight.call(tier.name, Verb.READ, len(entries)):
            return await tier.backend.read([entry.ref for entry in entries])

    async def write(
        self, tier: TierState, entries: Sequence[Entry], sources: Sequence[Source | None] | None = None
    ) -> list[Completion]:
        if sources is None:
            items = [WriteItem(entry.ref) for entry in entries]
        else:
            items = [WriteItem(entry.ref, source) for entry, source in zip(entries, sources, strict=True)]
        with self.in_flight.call(tier.name, Verb.WRITE, len(entries)):
            return await tier.backend.write(items)

    async def delete(
        self, tier: TierState, entries: Sequence[Entry], purpose: Purpose, stored_bytes: Sequence[int]
    ) -> int:
        """Delete objects from a tier; returns the bytes of those that are gone, still booked."""
        with self.in_flight.call(tier.name, Verb.DELETE, len(entries)):
            completions = await tier.backend.delete([entry.ref for entry in entries])
        self.reports.ops(tier, Verb.DELETE, purpose, entries, completions)
        freed_bytes = 0
        for completion, nbytes in zip(completions, stored_bytes, strict=True):
            if completion.error in (None, "ENOENT"):
                freed_bytes += nbytes
            else:
                tier.lose(nbytes)
        return freed_bytes

    # How entries begin

    def wrote(
        self,
        tier: TierState,
        entries: Sequence[Entry],
        completions: Sequence[Completion],
        purpose: Purpose,
        put: Put,
        pin: bool = False,
    ) -> None:
        """New entries were written, or failed and leave nothing behind."""
        self.reports.ops(tier, Verb.WRITE, purpose, entries, completions)
        # The end of a chain settles in first, so that it is the coldest of it.
        for entry, completion in zip(reversed(entries), reversed(completions), strict=True):
            if completion.error is None:
                entry.state = State.READY
                if not entry.doomed:
                    tier.settle_in(entry)
                self.settle(entry)
                if not pin:
                    self.release(entry)
            else:
                self.forget(entry)
                entry.state = State.GONE
                tier.take_back(entry.stored_bytes, completion)
                self.settle(entry)
        for entry, completion in zip(entries, completions, strict=True):
            if completion.error is None:
                put.entries.append(entry)
            elif completion.error == CANCELLED:
                put.cancelled = True
            else:
                put.failed.append(completion.error)

    async def settled(self, entry: Entry) -> None:
        """Wait for the end of the write or the move under way."""
        if entry.settled is None:
            entry.settled = asyncio.get_running_loop().create_future()
        await asyncio.shield(entry.settled)

    def settle(self, entry: Entry) -> None:
        """A write or a move has ended."""
        if entry.settled is not None:
            entry.settled.set_result(None)
            entry.settled = None

    # How entries end

    def release(self, entry: Entry) -> None:
        """Give up one pin."""
        entry.tier.unpin(entry)
        if entry.doomed:
            self.bury(entry)

    def doom(self, entry: Entry) -> None:
        """Make an entry unreachable; it goes with its last pin."""
        self.forget(entry)
        if entry.state is State.READY:
            entry.tier.take_out(entry, evicted=False)
            entry.claim = None
        entry.doomed = True
        self.bury(entry)

    def bury(self, entry: Entry) -> None:
        if entry.doomed and entry.pins == 0 and entry.state is State.READY:
            entry.state = State.GONE
            self._spawn(self._remove(entry))

    async def _remove(self, entry: Entry) -> None:
        freed_bytes = await self.delete(entry.tier, [entry], Purpose.EVICTION, [entry.stored_bytes])
        entry.tier.take(-freed_bytes)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
