"""The cache: finds, places, demotes and drops entries over the tiers, by the rules C1-C7."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any

from kvspill.cache.flight import InFlight
from kvspill.cache.gathering import gather
from kvspill.cache.options import CacheOptions, Put
from kvspill.cache.tier import Entry, State, TierState
from kvspill.records import (
    Completion,
    Eviction,
    HitType,
    Lookup,
    Observer,
    OpRecord,
    Outcome,
    Purpose,
    Tier,
    Verb,
)
from kvspill.storage.base import ObjectRef, Source, WriteItem

_REBUILDS = (Purpose.HISTORY, Purpose.PROMPT, Purpose.RAG)
_SHARED = (Purpose.PROMPT, Purpose.RAG, Purpose.INGEST)


class Cache:
    """Entries over tiers, fastest first. Lives on the event loop, so its state needs no locks."""

    def __init__(
        self,
        tiers: Sequence[TierState],
        observer: Observer,
        clock_ns: Callable[[], int],
        options: CacheOptions | None = None,
    ):
        assert tiers, "a cache needs at least one tier"
        self.tiers = tuple(tiers)
        self._observer = observer
        self._clock_ns = clock_ns
        self._options = options or CacheOptions()
        self._index: dict[str, Entry] = {}
        self._generation = 0
        self._shared: set[str] = set()
        """Prompts and chunks that have been there: a request that misses one writes it again."""
        self.errors: Counter[tuple[Tier, Verb, str]] = Counter()
        """Every operation that failed, by kind, whenever it was."""
        self.on_error: Callable[[], None] = lambda: None
        """Called after each of them: somebody may want to end the run."""
        limit = self._options.max_concurrent_allocs
        self._slots = asyncio.Semaphore(limit) if limit else None
        self._background: set[asyncio.Task[None]] = set()
        self._in_flight = InFlight()

    def find(self, key: str) -> Entry | None:
        """The entry of that key, wherever it is, without counting as a lookup."""
        return self._index.get(key)

    async def get(self, key: str, purpose: Purpose, hit_type: HitType) -> Outcome:
        """Read an entry where it lives. A read that fails is an error and loses the entry."""
        entry = self._index.get(key)
        while entry is not None and entry.state is not State.READY:
            await self._settled(entry)
            entry = self._index.get(key)
        if entry is None:
            self._observer.lookup(Lookup(self._clock_ns(), purpose, hit_type, Outcome.MISS, None))
            return Outcome.MISS
        if entry.claim is not None:
            entry.tier.rescue(entry)
        entry.tier.pin(entry)
        try:
            return await self.read_pinned(entry, purpose, hit_type)
        finally:
            self.release(entry)

    async def read_pinned(self, entry: Entry, purpose: Purpose, hit_type: HitType) -> Outcome:
        """Read an entry that the caller has pinned."""
        assert entry.pins > 0
        tier = entry.tier
        completion = await self._read(tier, entry.ref)
        if completion.error is not None and not entry.doomed and completion.error != "cancelled":
            self._doom(entry)
        elif not entry.doomed:
            tier.policy.touch(entry.ref.key)
        self._report(tier, Verb.READ, purpose, entry, completion)
        outcome = Outcome.HIT if completion.error is None else Outcome.ERROR
        if completion.error != "cancelled":
            self._observer.lookup(Lookup(completion.finished_ns, purpose, hit_type, outcome, tier.name))
        return outcome

    async def put(self, key: str, nbytes: int, purpose: Purpose, pin: bool = False) -> Put:
        """Write an entry to the fastest tier that may hold it; an existing key is overwritten (C3)."""
        async with self._slots or nullcontext():
            level = self._level_for(key, purpose)
            old = self._index.get(key)
            if old is not None:
                self._doom(old)
            tier = await self._place(nbytes, level)
            if tier is None:
                return Put(None, self._misfit(nbytes))
            self._generation += 1
            ref = ObjectRef(key, self._generation, nbytes)
            entry = Entry(ref, tier, tier.backend.stored_bytes(nbytes), pins=1)
            newer = self._index.get(key)
            if newer is not None:
                self._doom(newer)
            self._index[key] = entry
            completion = await self._write(tier, ref, None)
        self._report(tier, Verb.WRITE, purpose, entry, completion)
        if completion.error is not None:
            self._forget(entry)
            entry.state = State.GONE
            tier.take(-entry.stored_bytes)
            self._settle(entry)
            return Put(None, completion.error)
        entry.state = State.READY
        if purpose in _SHARED:
            self._shared.add(key)
        if not entry.doomed:
            tier.settle_in(entry)
        self._settle(entry)
        if not pin:
            self.release(entry)
        return Put(entry)

    def release(self, entry: Entry) -> None:
        """Give up one pin."""
        entry.tier.unpin(entry)
        self._bury(entry)

    def discard(self, entry: Entry) -> None:
        """Give up one pin and the entry with it: nobody will ask for it again."""
        if not entry.doomed:
            self._doom(entry)
        self.release(entry)

    async def drain(self) -> None:
        """Wait for the deletes that nobody waits for."""
        while self._background:
            await asyncio.gather(*self._background)

    async def stop(self) -> None:
        """The run is over: cut short what is in flight, and wait until its end was reported."""
        for tier in self.tiers:
            tier.backend.cancel()
        await self._in_flight.over()

    # Room

    def _level_for(self, key: str, purpose: Purpose) -> int:
        """Where an entry may begin: a new one at the top (C1), one written again where it fell out.

        With more room it would still be read from the last tier, for nothing is promoted. Written to the top,
        a prompt would be the faster for having been evicted, and a smaller capacity would raise a score (C3).
        """
        if purpose not in _REBUILDS:
            return 0
        there = self._index.get(key)
        if there is not None:
            # Somebody else missed it too and was faster.
            return self.tiers.index(there.tier)
        return len(self.tiers) - 1 if purpose is Purpose.HISTORY or key in self._shared else 0

    def _fits(self, tier: TierState, nbytes: int) -> bool:
        return tier.backend.stored_bytes(nbytes) <= tier.usable_bytes

    def _misfit(self, nbytes: int) -> str:
        return "no_space" if any(self._fits(tier, nbytes) for tier in self.tiers) else "too_large"

    async def _place(self, nbytes: int, level: int) -> TierState | None:
        """Reserve room for an entry in the fastest tier from `level` on that can hold it (C1, C4)."""
        candidates = [tier for tier in self.tiers[level:] if self._fits(tier, nbytes)]
        for tier in candidates:
            stored_bytes = tier.backend.stored_bytes(nbytes)
            if self._options.waterfall or tier is self.tiers[-1]:
                if await self._make_room(tier, stored_bytes):
                    return tier
            elif stored_bytes <= tier.free_bytes:
                tier.take(stored_bytes)
                return tier
        return None

    async def _make_room(self, tier: TierState, stored_bytes: int) -> bool:
        """Book bytes, pushing the coldest idle entries out; False where that can't free enough.

        What is free is booked at once and the bytes of pushed-out entries stay booked for us, so
        nobody can take them in between. Nobody stands in line with bytes in hand, only the last
        tier waits, and only for bytes that somebody will surely release: holders of pins never wait
        for space. So there is no deadlock (C4).
        """
        waited = False
        while True:
            async with tier.turn:
                while True:
                    short_bytes = stored_bytes - tier.free_bytes
                    if short_bytes <= 0:
                        tier.take(stored_bytes)
                        return True
                    victims = tier.claim_victims(short_bytes)
                    if victims is not None:
                        break
                    if tier is not self.tiers[-1] or tier.busy_bytes == 0:
                        return False
                    tier.crowded_puts += not waited
                    waited = True
                    await tier.wait_for_change()
                held_bytes = tier.free_bytes
                tier.take(held_bytes)
            held_bytes += await self._push_all_out(victims)
            if held_bytes >= stored_bytes:
                tier.take(stored_bytes - held_bytes)
                return True
            # A victim was rescued by a hit, or its delete failed: back to the end of the line.
            tier.take(-held_bytes)

    async def _push_all_out(self, victims: list[tuple[Entry, object]]) -> int:
        """Push claimed entries out; returns the bytes that they no longer need."""
        return sum(await gather([self._push_out(entry, claim) for entry, claim in victims]))

    async def _push_out(self, entry: Entry, claim: object) -> int:
        """Demote a claimed entry, or drop it from the last tier; returns the bytes it no longer needs."""
        if entry.claim is not claim:
            return 0
        tier = entry.tier
        if tier is self.tiers[-1]:
            return await self._drop(entry)
        below = await self._place(entry.ref.nbytes, self.tiers.index(tier) + 1)
        if entry.claim is not claim:
            if below is not None:
                below.take(-below.backend.stored_bytes(entry.ref.nbytes))
            return 0
        if below is None:
            return await self._drop(entry)
        return await self._move(entry, below)

    def _report_eviction(self, entry: Entry, tier: TierState, below: TierState | None) -> None:
        key, generation, nbytes = entry.ref
        gone_to = None if below is None else below.name
        self._observer.eviction(Eviction(self._clock_ns(), tier.name, gone_to, nbytes, key, generation))

    async def _drop(self, entry: Entry) -> int:
        """Delete a claimed entry: it falls out of the cache."""
        tier = entry.tier
        entry.state = State.GONE
        tier.take_out(entry, evicted=True)
        self._forget(entry)
        self._report_eviction(entry, tier, None)
        return await self._delete(tier, entry, Purpose.EVICTION)

    async def _move(self, entry: Entry, below: TierState) -> int:
        """Demote a claimed entry into room already booked below: a read above, a write below (C6)."""
        above, above_bytes = entry.tier, entry.stored_bytes
        below_bytes = below.backend.stored_bytes(entry.ref.nbytes)
        entry.state = State.MOVING
        above.take_out(entry, evicted=True)
        source = above.backend.lend(entry.ref)
        if source is None:
            read = await self._read(above, entry.ref)
        else:
            now_ns = self._clock_ns()
            # Nothing is copied: the write below takes the bytes from where they are (E5).
            read = Completion(now_ns, now_ns, now_ns, 0, ((now_ns, now_ns, entry.stored_bytes),))
        self._report(above, Verb.READ, Purpose.DEMOTION, entry, read)
        error = read.error
        if error is None:
            write = await self._write(below, entry.ref, source)
            entry.stored_bytes = below_bytes
            self._report(below, Verb.WRITE, Purpose.DEMOTION, entry, write)
            entry.stored_bytes = above_bytes
            error = write.error
        if error is None:
            entry.tier, entry.stored_bytes, entry.claim = below, below_bytes, None
            entry.state = State.READY
            if not entry.doomed:
                below.settle_in(entry)
        else:
            below.take(-below_bytes)
            entry.state = State.GONE
            self._forget(entry)
        if error != "cancelled":
            self._report_eviction(entry, above, None if error else below)
        self._settle(entry)
        self._bury(entry)
        return await self._delete(above, entry, Purpose.DEMOTION, above_bytes)

    async def _delete(
        self, tier: TierState, entry: Entry, purpose: Purpose, stored_bytes: int | None = None
    ) -> int:
        """Delete an entry's object from a tier; returns its bytes, still booked, or 0 where it failed."""
        stored_bytes = entry.stored_bytes if stored_bytes is None else stored_bytes
        completion = (await tier.backend.delete([entry.ref]))[0]
        self._report(tier, Verb.DELETE, purpose, entry, completion)
        if completion.error in (None, "ENOENT"):
            return stored_bytes
        tier.lose(stored_bytes)
        return 0

    # Entries that are no longer wanted

    def _doom(self, entry: Entry) -> None:
        """Make an entry unreachable; it goes with its last pin."""
        self._forget(entry)
        if entry.state is State.READY:
            entry.tier.take_out(entry, evicted=False)
            entry.claim = None
        entry.doomed = True
        self._bury(entry)

    def _bury(self, entry: Entry) -> None:
        if entry.doomed and entry.pins == 0 and entry.state is State.READY:
            entry.state = State.GONE
            self._spawn(self._remove(entry))

    async def _remove(self, entry: Entry) -> None:
        freed_bytes = await self._delete(entry.tier, entry, Purpose.EVICTION)
        entry.tier.take(-freed_bytes)

    def _forget(self, entry: Entry) -> None:
        if self._index.get(entry.ref.key) is entry:
            del self._index[entry.ref.key]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Small things

    async def _read(self, tier: TierState, ref: ObjectRef) -> Completion:
        with self._in_flight:
            return (await tier.backend.read([ref]))[0]

    async def _write(self, tier: TierState, ref: ObjectRef, source: Source | None) -> Completion:
        with self._in_flight:
            return (await tier.backend.write([WriteItem(ref, source)]))[0]

    async def _settled(self, entry: Entry) -> None:
        if entry.settled is None:
            entry.settled = asyncio.get_running_loop().create_future()
        await asyncio.shield(entry.settled)

    def _settle(self, entry: Entry) -> None:
        if entry.settled is not None:
            entry.settled.set_result(None)
            entry.settled = None

    def _report(
        self,
        tier: TierState,
        verb: Verb,
        purpose: Purpose,
        entry: Entry,
        completion: Completion,
        twins: Sequence[Entry] = (),
    ) -> None:
        if completion.error is not None and completion.error != "cancelled":
            self.errors[tier.name, verb, completion.error] += 1 + len(twins)
            self.on_error()
        key, generation, nbytes = entry.ref
        # By position, and not by name: this is done for every operation.
        others = tuple([twin.ref[:2] for twin in twins]) if twins else ()
        record = OpRecord(
            tier.name, verb, purpose, key, nbytes, entry.stored_bytes, completion, generation, others
        )
        self._observer.op(record)
