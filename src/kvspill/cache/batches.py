"""Demotion in batches: what must go is moved or dropped with one backend call per tier and verb."""

from collections.abc import Sequence
from itertools import groupby

from kvspill.cache.cache import Cache
from kvspill.cache.gathering import gather
from kvspill.cache.tier import Entry, State, TierState
from kvspill.records import Completion, Purpose, Verb
from kvspill.storage.base import Source, WriteItem

Victim = tuple[Entry, object]

_BATCH_SHARE = 4
"""A batch takes at most this part of a tier at once, so that one request cannot empty it."""


class BatchingCache(Cache):
    """A cache that makes room for many small entries at once."""

    async def _push_all_out(self, victims: list[Victim]) -> int:
        if len(victims) == 1:
            return await self._push_out(*victims[0])
        dropped = [entry for entry, _claim in victims if not self._moves_down(entry)]
        moved = [victim for victim in victims if self._moves_down(victim[0])]
        calls = [self._drop_many(dropped)] if dropped else []
        for _nbytes, group in groupby(moved, key=lambda victim: victim[0].ref.nbytes):
            calls.append(self._push_down(list(group)))
        return sum(await gather(calls))

    def _moves_down(self, entry: Entry) -> bool:
        """True where an entry that must go is demoted, if there is room."""
        return entry.tier is not self.tiers[-1]

    def _leaves_for(self, entry: Entry) -> TierState | None:  # noqa: ARG002 - a cache with copies needs it
        """The tier that still has the entry once it is dropped from its own."""
        return None

    async def _drop_many(self, entries: Sequence[Entry]) -> int:
        """Delete claimed entries of one tier as one batch."""
        tier = entries[0].tier
        for entry in entries:
            still_in = self._leaves_for(entry)
            entry.state = State.GONE
            tier.take_out(entry, evicted=True)
            self._forget(entry)
            self._report_eviction(entry, tier, still_in)
        return await self._delete_many(
            tier, entries, Purpose.EVICTION, [entry.stored_bytes for entry in entries]
        )

    async def _push_down(self, victims: list[Victim]) -> int:
        """Demote claimed entries of one tier and size, as far as there is room below; drop the rest."""
        nbytes = victims[0][0].ref.nbytes
        level = self.tiers.index(victims[0][0].tier) + 1
        freed_bytes = 0
        while victims:
            below, count = await self._place_many(len(victims), nbytes, level)
            if below is None:
                left = [entry for entry, claim in victims if entry.claim is claim]
                return freed_bytes + (await self._drop_many(left) if left else 0)
            # A hit may have rescued some while room was made.
            going = [entry for entry, claim in victims[:count] if entry.claim is claim]
            victims = victims[count:]
            below.take(-(count - len(going)) * below.backend.stored_bytes(nbytes))
            if going:
                freed_bytes += await self._move_many(going, below)
        return freed_bytes

    async def _place_many(self, wanted: int, nbytes: int, level: int) -> tuple[TierState | None, int]:
        """Book room for some of the wanted entries in the fastest tier from `level` on that can (C1)."""
        for tier in self.tiers[level:]:
            stored_bytes = tier.backend.stored_bytes(nbytes)
            if stored_bytes > tier.usable_bytes:
                continue
            count = self._batch_size(tier, wanted, stored_bytes)
            if self._options.waterfall or tier is self.tiers[-1]:
                if await self._make_room(tier, count * stored_bytes):
                    return tier, count
                count = min(count, tier.free_bytes // stored_bytes)
                if count > 0 and await self._make_room(tier, count * stored_bytes):
                    return tier, count
            else:
                count = min(wanted, tier.free_bytes // stored_bytes)
                if count > 0:
                    tier.take(count * stored_bytes)
                    return tier, count
        return None, 0

    def _batch_size(self, tier: TierState, wanted: int, stored_bytes: int) -> int:
        return min(wanted, max(1, tier.usable_bytes // _BATCH_SHARE // stored_bytes))

    async def _move_many(self, entries: list[Entry], below: TierState) -> int:
        """Demote claimed entries into room already booked below: reads above, writes below (C6)."""
        above = entries[0].tier
        above_bytes = [entry.stored_bytes for entry in entries]
        for entry in entries:
            entry.state = State.MOVING
            above.take_out(entry, evicted=True)
        sources = {entry: above.backend.lend(entry.ref) for entry in entries}
        errors = await self._read_for_move(above, sources)
        going = [entry for entry in entries if errors[entry] is None]
        errors |= await self._write_for_move(below, going, sources)
        for entry in entries:
            self._arrive(entry, above, below, errors[entry])
        return await self._delete_many(above, entries, Purpose.DEMOTION, above_bytes)

    async def _read_for_move(
        self, above: TierState, sources: dict[Entry, Source | None]
    ) -> dict[Entry, str | None]:
        """Read what is not lent; returns each entry's error."""
        now_ns = self._clock_ns()
        copied = [entry for entry, source in sources.items() if source is None]
        completions = {
            # Nothing is copied: the write below takes the bytes from where they are (E5).
            entry: Completion(now_ns, now_ns, now_ns, 0, ((now_ns, now_ns, entry.stored_bytes),))
            for entry, source in sources.items()
            if source is not None
        }
        if copied:
            with self._in_flight:
                answers = await above.backend.read([entry.ref for entry in copied])
            completions |= dict(zip(copied, answers, strict=True))
        self._report_all(above, Verb.READ, Purpose.DEMOTION, [*completions], [*completions.values()])
        return {entry: completion.error for entry, completion in completions.items()}

    async def _write_for_move(
        self, below: TierState, entries: list[Entry], sources: dict[Entry, Source | None]
    ) -> dict[Entry, str | None]:
        """Write the entries below; from here on they count as they are stored there."""
        if not entries:
            return {}
        with self._in_flight:
            answers = await below.backend.write([WriteItem(entry.ref, sources[entry]) for entry in entries])
        for entry in entries:
            entry.stored_bytes = below.backend.stored_bytes(entry.ref.nbytes)
        self._report_all(below, Verb.WRITE, Purpose.DEMOTION, entries, answers)
        return {entry: completion.error for entry, completion in zip(entries, answers, strict=True)}

    def _arrive(self, entry: Entry, above: TierState, below: TierState, error: str | None) -> None:
        """A move has ended: the entry is below, or lost."""
        if error is None:
            entry.tier, entry.claim = below, None
            entry.state = State.READY
            if not entry.doomed:
                below.settle_in(entry)
        else:
            below.take(-below.backend.stored_bytes(entry.ref.nbytes))
            entry.state = State.GONE
            self._forget(entry)
        self._report_eviction(entry, above, None if error else below)
        self._settle(entry)
        self._bury(entry)

    async def _delete_many(
        self, tier: TierState, entries: Sequence[Entry], purpose: Purpose, stored_bytes: Sequence[int]
    ) -> int:
        """Delete objects from a tier; returns the bytes of those that are gone, still booked."""
        completions = await tier.backend.delete([entry.ref for entry in entries])
        self._report_all(tier, Verb.DELETE, purpose, entries, completions)
        freed_bytes = 0
        for completion, nbytes in zip(completions, stored_bytes, strict=True):
            if completion.error in (None, "ENOENT"):
                freed_bytes += nbytes
            else:
                tier.lose(nbytes)
        return freed_bytes

    def _report_all(
        self,
        tier: TierState,
        verb: Verb,
        purpose: Purpose,
        entries: Sequence[Entry],
        completions: Sequence[Completion],
    ) -> None:
        """Report a batch; neighbours that went exactly the same way in one record."""
        at, count = 0, len(entries)
        while at < count:
            first, completion = entries[at], completions[at]
            nbytes, stored_bytes = first.ref.nbytes, first.stored_bytes
            end = at + 1
            while (
                end < count
                and completions[end] is completion
                and entries[end].ref.nbytes == nbytes
                and entries[end].stored_bytes == stored_bytes
            ):
                end += 1
            self._report(tier, verb, purpose, first, completion, entries[at + 1 : end])
            at = end
