"""Tells the observer what a cache does: neighbours of a batch that went the same way in one record (E12)."""

from collections.abc import Callable, Iterator, Sequence

from kvspill.cache.tier import Entry, TierState
from kvspill.records import (
    CANCELLED,
    DROPPED,
    Completion,
    Eviction,
    Lookup,
    LookupKind,
    Observer,
    OpRecord,
    Outcome,
    Purpose,
    Tier,
    Verb,
)

_HIT, _MISS, _ERROR = Outcome.HIT, Outcome.MISS, Outcome.ERROR


def outcome_of(completion: Completion) -> Outcome:
    """What the read of an entry means for those who asked for it."""
    if completion.error is None:
        return _HIT
    return _MISS if completion.error == DROPPED else _ERROR


class Reports:
    """Operations, lookups and evictions, as the observer wants them."""

    def __init__(
        self,
        observer: Observer,
        clock_ns: Callable[[], int],
        failed: Callable[[Tier, Verb, str, int], None],
    ):
        self._observer = observer
        self._clock_ns = clock_ns
        self._failed = failed

    def ops(
        self,
        tier: TierState,
        verb: Verb,
        purpose: Purpose,
        entries: Sequence[Entry],
        completions: Sequence[Completion],
    ) -> None:
        for at, end in _alike(entries, completions):
            self._op(tier, verb, purpose, entries, completions[at], at, end)

    def reads(
        self, tier: TierState, kind: LookupKind, entries: Sequence[Entry], completions: Sequence[Completion]
    ) -> None:
        """Reads that answer lookups. One that the end of the run cut off was no lookup."""
        purpose, hit_type = kind
        for at, end in _alike(entries, completions):
            completion = completions[at]
            outcome = outcome_of(completion)
            # What the store has dropped was not read: a miss, as if it had never been there.
            home = None if outcome is _MISS else tier.name
            if home is not None:
                self._op(tier, Verb.READ, purpose, entries, completion, at, end)
            if completion.error != CANCELLED:
                self._observer.lookup(
                    Lookup(completion.finished_ns, purpose, hit_type, outcome, home, end - at)
                )

    def misses(self, kinds: Sequence[LookupKind]) -> None:
        now_ns, at, count = self._clock_ns(), 0, len(kinds)
        while at < count:
            end = at + 1
            while end < count and kinds[end] == kinds[at]:
                end += 1
            purpose, hit_type = kinds[at]
            self._observer.lookup(Lookup(now_ns, purpose, hit_type, Outcome.MISS, None, end - at))
            at = end

    def evictions(
        self, tier: TierState, entries: Sequence[Entry], belows: Sequence[TierState | None]
    ) -> None:
        """Entries left a tier for others below it, or were dropped (None)."""
        now_ns, at, count = self._clock_ns(), 0, len(entries)
        while at < count:
            (key, generation, nbytes), below = entries[at].ref, belows[at]
            end = at + 1
            while end < count and belows[end] is below and entries[end].ref.nbytes == nbytes:
                end += 1
            gone_to = None if below is None else below.name
            twins = _twins(entries, at, end)
            self._observer.eviction(Eviction(now_ns, tier.name, gone_to, nbytes, key, generation, twins))
            at = end

    def waited_for_room(self, since_ns: int, writes: int) -> None:
        """A put of so many writes stood still until now."""
        self._observer.room_wait(since_ns, self._clock_ns(), writes)

    def _op(
        self,
        tier: TierState,
        verb: Verb,
        purpose: Purpose,
        entries: Sequence[Entry],
        completion: Completion,
        at: int,
        end: int,
    ) -> None:
        if completion.error is not None and completion.error != CANCELLED:
            self._failed(tier.name, verb, completion.error, end - at)
        first = entries[at]
        key, generation, nbytes = first.ref
        # By position, and not by name: this is done for every operation.
        self._observer.op(
            OpRecord(
                tier.name,
                verb,
                purpose,
                key,
                nbytes,
                first.stored_bytes,
                completion,
                generation,
                _twins(entries, at, end),
                first.tokens,
            )
        )


def _alike(entries: Sequence[Entry], completions: Sequence[Completion]) -> Iterator[tuple[int, int]]:
    """From where to where entries have one size and share one completion."""
    at, count = 0, len(entries)
    while at < count:
        first, completion = entries[at], completions[at]
        nbytes, stored_bytes, tokens = first.ref.nbytes, first.stored_bytes, first.tokens
        end = at + 1
        while (
            end < count
            and completions[end] is completion
            and entries[end].ref.nbytes == nbytes
            and entries[end].stored_bytes == stored_bytes
            and entries[end].tokens == tokens
        ):
            end += 1
        yield at, end
        at = end


def _twins(entries: Sequence[Entry], at: int, end: int) -> tuple[tuple[str, int], ...]:
    return tuple([entry.ref[:2] for entry in entries[at + 1 : end]]) if end > at + 1 else ()
