"""The cache: finds, reads, writes and copies entries over the tiers, in batches, by the rules C1-C7."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from kvspill.cache.core import Core
from kvspill.cache.flight import Unanswered
from kvspill.cache.gathering import gather
from kvspill.cache.options import CacheOptions, Put
from kvspill.cache.promotion import Promotion
from kvspill.cache.reports import Reports, outcome_of
from kvspill.cache.room import Room
from kvspill.cache.seen import SeenKeys
from kvspill.cache.tier import Entry, State, TierState
from kvspill.records import (
    CANCELLED,
    REBUILDS,
    Completion,
    LookupKind,
    Observer,
    Outcome,
    Purpose,
    Tier,
    Verb,
)
from kvspill.storage.base import ObjectRef

_SHARED = (Purpose.PROMPT, Purpose.RAG, Purpose.INGEST)

_New = tuple[str, str | None]
"""The key of an entry to be written, and that of the block which it continues."""


class Cache:
    """Entries over tiers, fastest first. Lives on the event loop, so its state needs no locks."""

    def __init__(
        self,
        tiers: Sequence[TierState],
        observer: Observer,
        clock_ns: Callable[[], int],
        options: CacheOptions | None = None,
    ):
        options = options or CacheOptions()
        self._reports = Reports(observer, clock_ns, self._note_error)
        self._core = Core(tiers, self._reports, clock_ns)
        self.tiers = self._core.tiers
        self._homes = self._core.homes
        self._room = Room(self._core, options)
        self._promotion = Promotion(self._core, self._room)
        self._generation = 0
        self._shared: set[str] = set()
        """Prompts and chunks that have been there: a request that misses one writes it again."""
        self._seen = SeenKeys(options.seen_max) if options.demote_min_uses else None
        """How often entries were used, also those that are gone."""
        self.errors: Counter[tuple[Tier, Verb, str]] = Counter()
        """Every operation that failed, by kind, whenever it was."""
        self.on_error: Callable[[], None] = lambda: None
        """Called after each of them: somebody may want to end the run."""
        limit = options.max_concurrent_allocs
        self._slots = asyncio.Semaphore(limit) if limit else None

    def find(self, key: str) -> Entry | None:
        """The entry of that key where it can be had fastest, without counting as a lookup."""
        copy = self._core.copies.get(key)
        return copy if copy is not None and copy.state is State.READY else self._homes.get(key)

    async def settled(self, entry: Entry) -> None:
        """Wait for the end of the write or the move under way; it has its room, so it will end."""
        if entry.state in (State.WRITING, State.MOVING):
            await self._core.settled(entry)

    # Reading

    async def get(self, keys: Sequence[str], kinds: Sequence[LookupKind]) -> list[Outcome]:
        """Read entries where they live; what is on its way is waited for, with nothing pinned (C4)."""
        while (entry := self._on_its_way(keys)) is not None:
            await self._core.settled(entry)
        found = [self.find(key) for key in keys]
        there = [(entry, kind) for entry, kind in zip(found, kinds, strict=True) if entry is not None]
        if len(there) < len(keys):
            self.missed([kind for entry, kind in zip(found, kinds, strict=True) if entry is None])
        if not there:
            return [Outcome.MISS] * len(keys)
        outcomes = iter(await self.load([entry for entry, _kind in there], [kind for _entry, kind in there]))
        return [Outcome.MISS if entry is None else next(outcomes) for entry in found]

    def _on_its_way(self, keys: Sequence[str]) -> Entry | None:
        for key in keys:
            entry = self.find(key)
            if entry is not None and entry.state is not State.READY:
                return entry
        return None

    async def load(self, entries: Sequence[Entry], kinds: Sequence[LookupKind]) -> list[Outcome]:
        """Read entries, each once, as one batch per tier. They must be READY now; of a chain, parents first.

        A read that fails is an error and loses the entry; one whose object the store has dropped is a miss.
        """
        for entry in entries:
            if entry.claim is not None:
                entry.tier.rescue(entry)
            entry.tier.pin(entry)
        try:
            completions = await self._read(entries)
            self._loaded(entries, kinds, completions)
            return [outcome_of(done) for done in completions]
        finally:
            self.release(entries)

    async def _read(self, entries: Sequence[Entry]) -> list[Completion]:
        places: dict[TierState, list[int]] = {}
        for place, entry in enumerate(entries):
            places.setdefault(entry.tier, []).append(place)
        if len(places) == 1:
            return await self._core.read(entries[0].tier, entries)
        answers = await gather(
            [self._core.read(tier, [entries[place] for place in at]) for tier, at in places.items()]
        )
        found = {
            place: completion
            for at, completions in zip(places.values(), answers, strict=True)
            for place, completion in zip(at, completions, strict=True)
        }
        return [found[place] for place in range(len(entries))]

    def _loaded(
        self, entries: Sequence[Entry], kinds: Sequence[LookupKind], completions: Sequence[Completion]
    ) -> None:
        """Entries have been read."""
        at, count = 0, len(entries)
        while at < count:
            tier, kind, end = entries[at].tier, kinds[at], at + 1
            while end < count and entries[end].tier is tier and kinds[end] == kind:
                end += 1
            self._reports.reads(tier, kind, entries[at:end], completions[at:end])
            at = end
        # The end of the chain is touched first, so that it is the coldest of it.
        for entry, completion in zip(reversed(entries), reversed(completions), strict=True):
            if completion.error is None:
                entry.uses += 1
                if self._seen is not None:
                    self._seen.note(entry.ref.key)
                if not entry.doomed:
                    entry.tier.policy.touch(entry.ref.key)
            elif completion.error != CANCELLED and not entry.doomed:
                self._core.doom(entry)

    def missed(self, kinds: Sequence[LookupKind]) -> None:
        """Count entries that were asked for and are not there."""
        self._reports.misses(kinds)

    # Writing

    async def put(
        self,
        keys: Sequence[str],
        nbytes: int,
        purpose: Purpose,
        *,
        tokens: int = 0,
        parents: Sequence[str | None] | None = None,
        level: int = 0,
        pin: bool = False,
        replace: bool = True,
    ) -> Put:
        """Write entries of nbytes each to the fastest tier from `level` on that may hold them (C1).

        tokens: how many of a context each of them holds.
        An existing key is overwritten (C3), or skipped where nothing is to be replaced. Nothing is pinned
        while it waits for room (C4).
        """
        put = Put()
        todo = list(zip(keys, parents or [None] * len(keys), strict=True))
        while todo and not put.cancelled:
            async with self._slots or nullcontext():
                if not replace:
                    todo = [one for one in todo if one[0] not in self._homes]
                    if not todo:
                        break
                from_level = max(level, self._level_for(todo, purpose))
                if replace:
                    self._doom_all(todo)
                tier, count = await self._room.place(len(todo), nbytes, from_level, put.lost)
                if tier is None:
                    put.refused, put.refusal = len(todo), self._room.misfit(nbytes)
                    break
                entries = self._enter(tier, todo[:count], nbytes, tokens, replace)
                todo = todo[count:]
                completions = await self._core.write(tier, entries) if entries else []
            if entries:
                self._core.wrote(tier, entries, completions, purpose, put, pin)
        if purpose in _SHARED:
            self._shared.update(entry.ref.key for entry in put.entries)
        return put

    def _enter(
        self, tier: TierState, batch: Sequence[_New], nbytes: int, tokens: int, replace: bool
    ) -> list[Entry]:
        """Entries to be written into booked room; others may have made some of them meanwhile."""
        stored_bytes = tier.backend.stored_bytes(nbytes)
        entries = []
        for key, parent in batch:
            there = self._homes.get(key)
            if there is not None:
                if not replace:
                    continue
                self._core.doom(there)
            self._generation += 1
            uses = 0 if self._seen is None else self._seen.note(key) - 1
            ref = ObjectRef(key, self._generation, nbytes)
            entry = Entry(ref, tier, stored_bytes, pins=1, parent=parent, uses=uses, tokens=tokens)
            self._homes[key] = entry
            entries.append(entry)
        tier.take(-(len(batch) - len(entries)) * stored_bytes)
        return entries

    def _level_for(self, batch: Sequence[_New], purpose: Purpose) -> int:
        """Where entries may begin: new ones at the top (C1), those written again where they fell out.

        With more room they would still be read from the last tier, for nothing is promoted. Written to the
        top, a prompt would be the faster for having been evicted, and a smaller capacity would raise a
        score (C3).
        """
        if purpose not in REBUILDS:
            return 0
        return min(self._level_of_rebuilt(key, purpose) for key, _parent in batch)

    def _level_of_rebuilt(self, key: str, purpose: Purpose) -> int:
        there = self._homes.get(key)
        if there is not None:
            # Another request missed it too and was faster.
            return self.tiers.index(there.tier)
        return len(self.tiers) - 1 if purpose is Purpose.HISTORY or key in self._shared else 0

    def _doom_all(self, batch: Sequence[_New]) -> None:
        """What is to be overwritten leaves its room first."""
        for key, _parent in batch:
            there = self._homes.get(key)
            if there is not None:
                self._core.doom(there)

    async def promote(self, keys: Sequence[str]) -> int:
        """Copy entries of the last tier into DRAM, as far as room can be made; returns how many."""
        return await self._promotion.promote(keys)

    # Pins and the end

    def release(self, entries: Sequence[Entry]) -> None:
        """Give up one pin of each."""
        for entry in entries:
            self._core.release(entry)

    def discard(self, entries: Sequence[Entry]) -> None:
        """Give up one pin of each and the entries with it: nobody will ask for them again."""
        for entry in entries:
            if not entry.doomed:
                self._core.doom(entry)
        self.release(entries)

    async def drain(self) -> None:
        """Wait for deletes that nobody else waits for."""
        while self._core.background:
            await asyncio.gather(*self._core.background)

    async def stop(self) -> None:
        """The run is over: cut short what is in flight, and wait until its end was reported."""
        for tier in self.tiers:
            tier.backend.cancel()
        await self._core.in_flight.over()

    def in_flight(self, tier: Tier) -> int:
        """Reads and writes of a tier that are under way now."""
        return self._core.in_flight.operations(tier)

    def unanswered(self) -> list[Unanswered]:
        """After `stop`: the operations that did not return, oldest first (S16)."""
        return self._core.in_flight.unanswered()

    def _note_error(self, tier: Tier, verb: Verb, error: str, count: int) -> None:
        self.errors[tier, verb, error] += count
        self.on_error()
