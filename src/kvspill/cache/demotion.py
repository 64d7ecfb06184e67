"""What must go from a tier is moved down or dropped, with one backend call per batch and verb (C6)."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

from kvspill.cache.core import Core
from kvspill.cache.gathering import gather, in_turn
from kvspill.cache.options import CacheOptions
from kvspill.cache.tier import Entry, State, TierState, Victim
from kvspill.records import CANCELLED, Completion, Purpose, Verb
from kvspill.storage.base import Source

Place = Callable[[int, int, int, list[str]], Awaitable[tuple[TierState | None, int]]]
"""Books room for so many entries of so many bytes, from a level on; says where and for how many. The list
gets the error of each entry that was lost meanwhile."""


class Demotion:
    """Pushes claimed entries out of their tier."""

    def __init__(self, core: Core, place: Place, options: CacheOptions):
        self._core = core
        self._place = place
        self._in_blocks = options.in_blocks
        self._min_uses = options.demote_min_uses
        self._together = in_turn if options.in_order else gather

    async def push_out(self, victims: list[Victim], lost: list[str]) -> int:
        """Push entries of one tier out; returns the bytes that they no longer need, still booked.

        lost: gets the error of each that could not be moved, for the request that waits for it (C6).
        """
        if len(victims) == 1 or not self._in_blocks:
            return sum(await self._together([self._leave([victim], lost) for victim in victims]))
        dropped = [victim for victim in victims if not self._sinks(victim[0])]
        sinking = [victim for victim in victims if self._sinks(victim[0])]
        groups = [dropped] if dropped else []
        groups += [list(alike) for _nbytes, alike in groupby(sinking, key=lambda one: one[0].ref.nbytes)]
        return sum(await self._together([self._leave(group, lost) for group in groups]))

    def _sinks(self, entry: Entry) -> bool:
        """True where an entry is demoted. Copies are below already, and what was hardly used may not be
        worth a write."""
        if entry.tier is self._core.last or self._core.is_copy(entry):
            return False
        return entry.uses >= self._min_uses

    async def _leave(self, victims: list[Victim], lost: list[str]) -> int:
        """Demote entries as far as there is room below, and drop the rest.

        Each is asked anew: a copy whose home fell out of the tier below since it was claimed is a home now.
        """
        victims = [victim for victim in victims if _still_claimed(victim)]
        sinking = [victim for victim in victims if self._sinks(victim[0])]
        if len(sinking) < len(victims):
            freed_bytes = await self._drop([victim for victim in victims if not self._sinks(victim[0])])
        else:
            freed_bytes = 0
        for _nbytes, alike in groupby(sinking, key=lambda one: one[0].ref.nbytes):
            freed_bytes += await self._sink(list(alike), lost)
        return freed_bytes

    async def _sink(self, victims: list[Victim], lost: list[str]) -> int:
        """Demote entries of one size, and drop those for which there is no room below."""
        nbytes, level = victims[0][0].ref.nbytes, self._core.tiers.index(victims[0][0].tier) + 1
        freed_bytes = 0
        while victims:
            below, count = await self._place(len(victims), nbytes, level, lost)
            if below is None:
                return freed_bytes + await self._drop(victims)
            # A hit may have rescued some while room was made.
            going = [victim[0] for victim in victims[:count] if _still_claimed(victim)]
            victims = victims[count:]
            below.take(-(count - len(going)) * below.backend.stored_bytes(nbytes))
            if going:
                freed_bytes += await self._move(going, below, lost)
        return freed_bytes

    async def _drop(self, victims: Sequence[Victim]) -> int:
        """Delete claimed entries: copies leave their homes, all else falls out of the cache."""
        core = self._core
        entries = [victim[0] for victim in victims if _still_claimed(victim)]
        if not entries:
            return 0
        tier = entries[0].tier
        still_in = [core.homes[entry.ref.key].tier if core.is_copy(entry) else None for entry in entries]
        for entry in entries:
            entry.state = State.GONE
            tier.take_out(entry, evicted=True)
            core.forget(entry)
        core.reports.evictions(tier, entries, still_in)
        stored_bytes = [entry.stored_bytes for entry in entries]
        return await core.delete(tier, entries, Purpose.EVICTION, stored_bytes)

    async def _move(self, entries: list[Entry], below: TierState, lost: list[str]) -> int:
        """Demote claimed entries into room already booked below: reads above, writes below (C6)."""
        above = entries[0].tier
        above_bytes = [entry.stored_bytes for entry in entries]
        for entry in entries:
            entry.state = State.MOVING
            above.take_out(entry, evicted=True)
        sources = [above.backend.lend(entry.ref) for entry in entries]
        ends = await self._read(above, entries, sources)
        readable = [place for place, end in enumerate(ends) if end.error is None]
        if readable:
            written = await self._write(
                below, [entries[place] for place in readable], [sources[place] for place in readable]
            )
            for place, completion in zip(readable, written, strict=True):
                ends[place] = completion
        self._arrive(entries, above, below, ends)
        lost.extend(end.error for end in ends if end.error is not None and end.error != CANCELLED)
        return await self._core.delete(above, entries, Purpose.DEMOTION, above_bytes)

    async def _read(
        self, above: TierState, entries: Sequence[Entry], sources: Sequence[Source | None]
    ) -> list[Completion]:
        """Read what is not lent."""
        lent_ns = self._core.clock_ns()
        copied = [entry for entry, source in zip(entries, sources, strict=True) if source is None]
        answers = iter(await self._core.read(above, copied) if copied else ())
        completions = [
            # Nothing is copied: the write below takes the bytes from where they are (E5).
            next(answers) if source is None else _lent(entry, lent_ns)
            for entry, source in zip(entries, sources, strict=True)
        ]
        self._core.reports.ops(above, Verb.READ, Purpose.DEMOTION, entries, completions)
        return completions

    async def _write(
        self, below: TierState, entries: Sequence[Entry], sources: Sequence[Source | None]
    ) -> list[Completion]:
        """Write entries below; from here on they count as they are stored there."""
        completions = await self._core.write(below, entries, sources)
        for entry in entries:
            entry.stored_bytes = below.backend.stored_bytes(entry.ref.nbytes)
        self._core.reports.ops(below, Verb.WRITE, Purpose.DEMOTION, entries, completions)
        return completions

    def _arrive(
        self, entries: Sequence[Entry], above: TierState, below: TierState, ends: Sequence[Completion]
    ) -> None:
        """A move has ended: each entry is below, or lost. What was lost on the way is no eviction."""
        core = self._core
        for entry, end in zip(entries, ends, strict=True):
            if end.error is None:
                entry.tier, entry.claim = below, None
                entry.state = State.READY
                if not entry.doomed:
                    below.settle_in(entry)
            else:
                below.take_back(below.backend.stored_bytes(entry.ref.nbytes), end)
                entry.state = State.GONE
                core.forget(entry)
        moved = [entry for entry, end in zip(entries, ends, strict=True) if end.error is None]
        core.reports.evictions(above, moved, [below] * len(moved))
        for entry in entries:
            core.settle(entry)
            core.bury(entry)


def _still_claimed(victim: Victim) -> bool:
    """False where a hit has rescued it."""
    entry, claim = victim
    return entry.claim is claim


def _lent(entry: Entry, at_ns: int) -> Completion:
    return Completion(at_ns, at_ns, at_ns, 0, ((at_ns, at_ns, entry.stored_bytes),))
