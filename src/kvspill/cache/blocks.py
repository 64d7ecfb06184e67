"""Blocks in the cache: chains of them are looked up, loaded, stored and copied upward in batches."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby

from kvspill.cache.batches import BatchingCache
from kvspill.cache.gathering import gather
from kvspill.cache.options import CacheOptions
from kvspill.cache.policies.none import NonePolicy
from kvspill.cache.seen import SeenKeys
from kvspill.cache.tier import Entry, State, TierState
from kvspill.records import (
    Completion,
    HitType,
    Lookup,
    Observer,
    Outcome,
    Purpose,
    Tier,
    Verb,
)
from kvspill.storage.base import ObjectRef, WriteItem

Kind = tuple[Purpose, HitType]


@dataclass(frozen=True, slots=True)
class Stored:
    """How a batch of new blocks ended."""

    written: int = 0
    failed: int = 0
    """Writes that the backend answered with an error."""
    refused: int = 0
    """Blocks for which no tier had or could make room."""
    cancelled: bool = False

    def plus(self, other: "Stored") -> "Stored":
        return Stored(
            self.written + other.written,
            self.failed + other.failed,
            self.refused + other.refused,
            self.cancelled or other.cancelled,
        )


class BlockCache(BatchingCache):
    """A cache whose entries may be blocks of a chain; a block on storage may have a copy in DRAM.

    The copy is a second entry of the same object: the index keeps the block's home, and losing the
    copy costs a delete but no demotion. A copy whose home is lost becomes the home.
    """

    def __init__(
        self,
        tiers: Sequence[TierState],
        observer: Observer,
        clock_ns: Callable[[], int],
        options: CacheOptions | None = None,
        demote_min_uses: int = 0,
        seen_max: int = 1_000_000,
    ):
        super().__init__(tiers, observer, clock_ns, options)
        self._copies: dict[str, Entry] = {}
        self._demote_min_uses = demote_min_uses
        self._seen = SeenKeys(seen_max) if demote_min_uses else None
        """How often blocks were used, also those that are gone."""
        self._dram = next((tier for tier in self.tiers[:-1] if tier.name is Tier.CPU), None)

    @property
    def evicts(self) -> bool:
        """False where the last tier gives nothing up, so that it is full one day and takes no more."""
        return not isinstance(self.tiers[-1].policy, NonePolicy)

    def block(self, key: str) -> Entry | None:
        """The block of that key where it can be had fastest, without counting as a lookup."""
        copy = self._copies.get(key)
        return copy if copy is not None and copy.state is State.READY else self._index.get(key)

    async def settled(self, entry: Entry) -> None:
        """Wait for the end of the write or the move under way; it has its room, so it will end."""
        if entry.state in (State.WRITING, State.MOVING):
            await self._settled(entry)

    def missed(self, kinds: Sequence[Kind]) -> None:
        """Count blocks that were asked for and are not there."""
        now_ns = self._clock_ns()
        for (purpose, hit_type), equal in groupby(kinds):
            count = sum(1 for _kind in equal)
            self._observer.lookup(Lookup(now_ns, purpose, hit_type, Outcome.MISS, None, count))

    # Loading

    async def load(self, entries: Sequence[Entry], kinds: Sequence[Kind]) -> list[Outcome]:
        """Read blocks, each once, as one batch per tier. They must be READY now, parents first."""
        for entry in entries:
            if entry.claim is not None:
                entry.tier.rescue(entry)
            entry.tier.pin(entry)
        try:
            completions = await self._read_many(entries)
            outcomes: list[Outcome] = []
            for (tier, kind), places in groupby(
                range(len(entries)), key=lambda place: (entries[place].tier, kinds[place])
            ):
                at = [*places]
                some = slice(at[0], at[-1] + 1)
                outcomes += self._loaded(tier, kind, entries[some], completions[some])
            for entry in reversed(entries):
                # The end of the chain is touched first, so that it is the coldest of it.
                if entry.state is State.READY and not entry.doomed:
                    entry.tier.policy.touch(entry.ref.key)
            return outcomes
        finally:
            for entry in entries:
                self.release(entry)

    async def _read_many(self, entries: Sequence[Entry]) -> list[Completion]:
        places: dict[TierState, list[int]] = {}
        for place, entry in enumerate(entries):
            places.setdefault(entry.tier, []).append(place)

        async def read(tier: TierState, at: list[int]) -> list[Completion]:
            with self._in_flight:
                return await tier.backend.read([entries[place].ref for place in at])

        answers = await gather([read(tier, at) for tier, at in places.items()])
        found = {
            place: completion
            for at, completions in zip(places.values(), answers, strict=True)
            for place, completion in zip(at, completions, strict=True)
        }
        return [found[place] for place in range(len(entries))]

    def _loaded(
        self, tier: TierState, kind: Kind, entries: Sequence[Entry], completions: Sequence[Completion]
    ) -> list[Outcome]:
        """Blocks of one tier and kind have been read."""
        purpose, hit_type = kind
        self._report_all(tier, Verb.READ, purpose, entries, completions)
        outcomes, ended_ns = [], []
        for entry, completion in zip(entries, completions, strict=True):
            if completion.error is None:
                entry.uses += 1
                if self._seen is not None:
                    self._seen.note(entry.ref.key)
            elif not entry.doomed and completion.error != "cancelled":
                self._doom(entry)
            outcomes.append(Outcome.HIT if completion.error is None else Outcome.ERROR)
            if completion.error != "cancelled":
                ended_ns.append((completion.finished_ns, outcomes[-1]))
        for (at_ns, outcome), times in groupby(ended_ns):
            count = sum(1 for _time in times)
            self._observer.lookup(Lookup(at_ns, purpose, hit_type, outcome, tier.name, count))
        return outcomes

    # Storing

    async def store(
        self, keys: Sequence[str], parents: Sequence[str | None], nbytes: int, level: int = 0
    ) -> Stored:
        """Write new blocks of nbytes each, in batches, from tier `level` on; those that exist are skipped.

        Nothing is pinned while it waits for room (C4).
        """
        result = Stored()
        todo = list(zip(keys, parents, strict=True))
        while True:
            async with self._slots or nullcontext():
                todo = [block for block in todo if block[0] not in self._index]
                if not todo or result.cancelled:
                    return result
                tier, count = await self._place_many(len(todo), nbytes, level)
                if tier is None:
                    return result.plus(Stored(refused=len(todo)))
                batch = [block for block in todo[:count] if block[0] not in self._index]
                tier.take(-(count - len(batch)) * tier.backend.stored_bytes(nbytes))
                todo = todo[count:]
                if batch:
                    result = result.plus(await self._write_new(tier, batch, nbytes))

    async def _write_new(
        self, tier: TierState, batch: Sequence[tuple[str, str | None]], nbytes: int
    ) -> Stored:
        stored_bytes = tier.backend.stored_bytes(nbytes)
        entries = []
        for key, parent in batch:
            self._generation += 1
            ref = ObjectRef(key, self._generation, nbytes)
            uses = 0 if self._seen is None else self._seen.note(key) - 1
            entries.append(Entry(ref, tier, stored_bytes, pins=1, parent=parent, uses=uses))
            self._index[key] = entries[-1]
        return await self._write_many(tier, entries, Purpose.PREFILL)

    async def _write_many(self, tier: TierState, entries: Sequence[Entry], purpose: Purpose) -> Stored:
        """Write entries that have their room, as one batch; what fails leaves nothing behind."""
        with self._in_flight:
            completions = await tier.backend.write([WriteItem(entry.ref) for entry in entries])
        errors = [completion.error for completion in completions]
        self._report_all(tier, Verb.WRITE, purpose, entries, completions)
        # The end of a chain settles in first, so that it is the coldest of it.
        for entry, error in zip(reversed(entries), reversed(errors), strict=True):
            if error is None:
                entry.state = State.READY
                if not entry.doomed:
                    tier.settle_in(entry)
            else:
                self._forget(entry)
                entry.state = State.GONE
                tier.take(-entry.stored_bytes)
            self._settle(entry)
            if error is None:
                self.release(entry)
        written = errors.count(None)
        cancelled = errors.count("cancelled")
        return Stored(written, len(errors) - written - cancelled, cancelled=cancelled > 0)

    # Copies in DRAM

    async def promote(self, keys: Sequence[str]) -> int:
        """Copy blocks that live below DRAM into it, as far as room can be made; returns how many."""
        dram, promoted = self._dram, 0
        if dram is None:
            return 0
        todo = [key for key in keys if self._promotable(key)]
        while todo:
            home = self._index.get(todo[0])
            if home is None:
                todo = todo[1:]
                continue
            stored_bytes = dram.backend.stored_bytes(home.ref.nbytes)
            if stored_bytes > dram.usable_bytes:
                return promoted
            count = self._batch_size(dram, len(todo), stored_bytes)
            if not await self._make_room(dram, count * stored_bytes):
                return promoted
            # While room was made, blocks may have gone, moved or been copied by another.
            homes = [self._index[key] for key in todo[:count] if self._promotable(key)]
            homes = [home for home in homes if dram.backend.stored_bytes(home.ref.nbytes) == stored_bytes]
            dram.take(-(count - len(homes)) * stored_bytes)
            todo = todo[count:]
            if homes:
                result = await self._copy_up(dram, homes, stored_bytes)
                promoted += result.written
                if result.cancelled:
                    return promoted
        return promoted

    def _promotable(self, key: str) -> bool:
        home = self._index.get(key)
        return (
            home is not None
            and home.state is State.READY
            and home.tier is self.tiers[-1]
            and home.tier is not self._dram
            and key not in self._copies
        )

    async def _copy_up(self, dram: TierState, homes: Sequence[Entry], stored_bytes: int) -> Stored:
        copies = []
        for home in homes:
            if home.claim is not None:
                home.tier.rescue(home)
                home.tier.policy.touch(home.ref.key)
            home.tier.pin(home)
            copies.append(Entry(home.ref, dram, stored_bytes, pins=1, parent=home.parent, uses=home.uses))
            self._copies[home.ref.key] = copies[-1]
        try:
            return await self._write_many(dram, copies, Purpose.PROMOTION)
        finally:
            for home in homes:
                self.release(home)

    def _forget(self, entry: Entry) -> None:
        key = entry.ref.key
        copy = self._copies.get(key)
        if copy is entry:
            del self._copies[key]
            return
        super()._forget(entry)
        if copy is not None and key not in self._index:
            del self._copies[key]
            self._index[key] = copy

    # Room

    async def _push_out(self, entry: Entry, claim: object) -> int:
        if entry.claim is claim and not self._moves_down(entry):
            return await self._drop_many([entry])
        return await super()._push_out(entry, claim)

    def _moves_down(self, entry: Entry) -> bool:
        """Copies are below already; blocks that were hardly used may not be worth a write."""
        if self._copies.get(entry.ref.key) is entry or entry.tier is self.tiers[-1]:
            return False
        return entry.uses >= self._demote_min_uses

    def _leaves_for(self, entry: Entry) -> TierState | None:
        is_copy = self._copies.get(entry.ref.key) is entry
        return self._index[entry.ref.key].tier if is_copy else None
