"""The recorder: counts what completes inside the measured window, and nothing else (S3, S4)."""

from collections import Counter
from collections.abc import Iterator

from kvspill.measure.heatmap import LatencyMap
from kvspill.measure.histograms import Histogram
from kvspill.measure.lanes import Lane
from kvspill.measure.requests import RequestTally
from kvspill.measure.storage_speed import BUSY, SLOW_DELETES
from kvspill.measure.timeline import Timeline
from kvspill.records import (
    CANCELLED,
    NS_PER_SEC,
    Eviction,
    HitType,
    Lookup,
    Observer,
    OpRecord,
    Outcome,
    Purpose,
    RequestRecord,
    Tier,
    Verb,
)

_FAR_FUTURE_NS = 1 << 62


class Recorder(Observer):
    """An Observer of a run. The window is closed at both ends: [window_start_ns, window_end_ns].

    Without an end (a run of so many requests) the window stays open until close_window.
    """

    def __init__(self, window_start_ns: int, window_end_ns: int | None):
        self.window_start_ns = window_start_ns
        self.window_end_ns = _FAR_FUTURE_NS if window_end_ns is None else window_end_ns
        self.timeline = Timeline(window_start_ns)
        self.requests = RequestTally()
        self.storage_ttft = Histogram()
        """What storage adds to the time to the first token, of requests that say how much they recomputed."""
        self.cache_call_ns = 0
        """Time that requests spent inside cache calls in the window, all of them added up.

        Also those that failed or were unfinished at its end: with completed ones alone, a device on which
        most requests wait would look as fast as the few that did not.
        """
        self.room_wait_ns = 0
        """The part of it in which puts waited for room in the last tier (C4)."""
        self.room_waits = 0
        """Writes of these puts."""
        self.room_waits_at_end = 0
        """Those of them that still waited when the window ended."""
        self.stay_ns = 0
        """Time inside the window, from the intended one on, of the requests that ended in it."""
        self.service_ns = 0
        """The part of it in which they were served."""
        self.lookups: Counter[tuple[Outcome, Purpose, HitType, Tier | None]] = Counter()
        self.evictions: Counter[tuple[Tier, Tier | None]] = Counter()
        self.evicted_bytes: Counter[tuple[Tier, Tier | None]] = Counter()
        self.requests_over_time = LatencyMap(window_start_ns)
        """End-to-end latencies by the time that requests completed."""
        self._lanes = {tier: {verb: self._new_lane(tier, verb) for verb in Verb} for tier in Tier}
        self._latest_ns = window_start_ns

    def _new_lane(self, tier: Tier, verb: Verb) -> Lane:
        mapped = verb is not Verb.DELETE
        return Lane(tier, verb, LatencyMap(self.window_start_ns) if mapped else None)

    @property
    def window_seconds(self) -> float:
        """Length of the window; only known once it has an end."""
        return max(0, self.window_end_ns - self.window_start_ns) / NS_PER_SEC

    @property
    def is_open_ended(self) -> bool:
        return self.window_end_ns == _FAR_FUTURE_NS

    def close_window(self, at_ns: int) -> int:
        """End the window early, or give an open one its end; returns the end that holds.

        Never before a row that was already counted: what is in the window stays in it.
        """
        self.window_end_ns = max(min(self.window_end_ns, at_ns), self._latest_ns)
        return self.window_end_ns

    def move(self, by_ns: int) -> None:
        """Speak of times on a clock that shows so much more."""
        self.window_start_ns += by_ns
        self.window_end_ns += by_ns
        self._latest_ns += by_ns
        self.timeline.move(by_ns)

    def merge(self, other: "Recorder") -> None:
        """Add what another counted in the same window, by the same clock: the part of another rank."""
        self.window_end_ns = max(self.window_end_ns, other.window_end_ns)
        self._latest_ns = max(self._latest_ns, other._latest_ns)
        self.timeline.merge(other.timeline)
        self.requests.merge(other.requests)
        self.requests_over_time.merge(other.requests_over_time)
        self.storage_ttft.merge(other.storage_ttft)
        self.cache_call_ns += other.cache_call_ns
        self.room_wait_ns += other.room_wait_ns
        self.room_waits += other.room_waits
        self.room_waits_at_end += other.room_waits_at_end
        self.stay_ns += other.stay_ns
        self.service_ns += other.service_ns
        self.lookups.update(other.lookups)
        self.evictions.update(other.evictions)
        self.evicted_bytes.update(other.evicted_bytes)
        for lane in other.lanes():
            self.lane(lane.tier, lane.verb).merge(lane)

    def lane(self, tier: Tier, verb: Verb) -> Lane:
        return self._lanes[tier][verb]

    def lanes(self) -> Iterator[Lane]:
        for by_verb in self._lanes.values():
            yield from by_verb.values()

    def _inside(self, at_ns: int) -> bool:
        if not self.window_start_ns <= at_ns <= self.window_end_ns:
            return False
        if at_ns > self._latest_ns:
            self._latest_ns = at_ns
        return True

    def _overlap(self, from_ns: int, to_ns: int) -> int:
        """How much of that time lies inside the window."""
        inside_ns = min(to_ns, self.window_end_ns) - max(from_ns, self.window_start_ns)
        return inside_ns if inside_ns > 0 else 0

    def op(self, record: OpRecord) -> None:
        lane = self._lanes[record.tier][record.verb]
        completion = record.completion
        finished_inside = self._inside(completion.finished_ns)
        lane.inside_ns += record.times * self._overlap(completion.submitted_ns, completion.finished_ns)
        if record.tier is Tier.STORAGE:
            self._was_busy(record.verb, completion.started_ns, completion.finished_ns)
        if completion.finished_ns >= self.window_end_ns > completion.submitted_ns:
            self._at_the_end(lane, record)
        if completion.error is not None:
            self._failed_op(lane, record, finished_inside)
            return
        if record.verb is not Verb.DELETE:
            self._count_bytes(lane, record)
        if finished_inside:
            lane.complete(record.purpose, completion, record.nbytes, record.times)
            if record.verb is not Verb.DELETE:
                self.timeline.add(lane.ops_column, completion.finished_ns, record.times)

    def _was_busy(self, verb: Verb, from_ns: int, to_ns: int) -> None:
        """The storage was at work on an operation then; of deletes only the slow ones are of interest."""
        if verb is Verb.DELETE and to_ns - from_ns <= NS_PER_SEC:
            return
        from_ns, to_ns = max(from_ns, self.window_start_ns), min(to_ns, self.window_end_ns)
        if from_ns < to_ns:
            self.timeline.cover(SLOW_DELETES if verb is Verb.DELETE else BUSY, from_ns, to_ns)

    def _at_the_end(self, lane: Lane, record: OpRecord) -> None:
        """Count what was in flight when the window ended, with the age that it had then (S16)."""
        completion, end_ns = record.completion, self.window_end_ns
        if completion.finished_ns == end_ns and completion.error != CANCELLED:
            return
        begun = completion.started_ns >= completion.submitted_ns
        started_ns = min(completion.started_ns, end_ns) if begun else end_ns
        # What it was at after the end is taken for the device: before the end that leaves the least.
        later_ns = completion.finished_ns - max(end_ns, completion.started_ns)
        device_ns = min(max(0, completion.device_ns - later_ns), end_ns - started_ns)
        demotion = record.purpose is Purpose.DEMOTION
        lane.under_way(completion.submitted_ns, started_ns, end_ns, device_ns, record.times, demotion)

    def unanswered(self, tier: Tier, verb: Verb, submitted_ns: int, count: int, *, in_device: bool) -> None:
        """So many operations never returned, for the device hangs or because they wait for one that does."""
        end_ns = self.window_end_ns
        if submitted_ns >= end_ns:
            return
        started_ns = submitted_ns if in_device else end_ns
        if in_device and tier is Tier.STORAGE:
            self._was_busy(verb, submitted_ns, end_ns)
        self._lanes[tier][verb].inside_ns += count * self._overlap(submitted_ns, end_ns)
        self._lanes[tier][verb].under_way(submitted_ns, started_ns, end_ns, end_ns - started_ns, count, False)

    def _failed_op(self, lane: Lane, record: OpRecord, finished_inside: bool) -> None:
        completion = record.completion
        if completion.error == CANCELLED and completion.finished_ns >= self.window_end_ns:
            self._cut_off_op(lane, record)
            return
        if finished_inside:
            lane.errors[completion.error or ""] += record.times
            self.timeline.add("errors", completion.finished_ns, record.times)
        lane.failed_moved_bytes += record.times * sum(
            nbytes for _, end_ns, nbytes in completion.pieces if self._inside(end_ns)
        )

    def _cut_off_op(self, lane: Lane, record: OpRecord) -> None:
        """The end of the run cut it off: no failure, and what it moved inside the window did move (S4)."""
        completion = record.completion
        if record.verb is Verb.DELETE or not completion.pieces:
            return
        (start_ns, end_ns, moved_bytes), *others = completion.pieces
        if not others and (start_ns, end_ns) == (completion.started_ns, completion.finished_ns):
            # One piece from take-up to end is a model's account of what flowed, not a system call.
            self._count_interpolated(lane, record, moved_bytes, moved_bytes)
        else:
            whole_bytes = sum(nbytes for _, _, nbytes in completion.pieces)
            self._count_pieces(lane, record, max(record.stored_bytes, whole_bytes, 1))

    def _count_bytes(self, lane: Lane, record: OpRecord) -> None:
        pieces = record.completion.pieces
        if pieces:
            self._count_pieces(lane, record, max(sum(nbytes for _, _, nbytes in pieces), 1))
        else:
            self._count_interpolated(lane, record, record.nbytes, record.stored_bytes)

    def _count_pieces(self, lane: Lane, record: OpRecord, total_bytes: int) -> None:
        """Piece by piece when a piece ends inside the window; padding is taken off in proportion (C7)."""
        pieces = record.completion.pieces
        last_ns = max(end_ns for _, end_ns, _ in pieces)
        if self._one_second(min(end_ns for _, end_ns, _ in pieces), last_ns):
            moved_bytes = sum(nbytes for _, _, nbytes in pieces)
            lane.pieces.record_all([end_ns - start_ns for start_ns, end_ns, _ in pieces] * record.times)
            lane.moved_bytes += record.times * moved_bytes
            self._add_bytes(lane, record, last_ns, record.nbytes * moved_bytes // total_bytes)
            return
        moved_before = 0
        counted_before = 0
        for start_ns, end_ns, nbytes in sorted(pieces, key=_piece_end):
            moved_before += nbytes
            counted = record.nbytes * moved_before // total_bytes
            share = counted - counted_before
            counted_before = counted
            if self._inside(end_ns):
                lane.pieces.record_all([end_ns - start_ns] * record.times)
                lane.moved_bytes += record.times * nbytes
                self._add_bytes(lane, record, end_ns, share)

    def _count_interpolated(self, lane: Lane, record: OpRecord, nbytes: int, stored_bytes: int) -> None:
        """Where no pieces are known, bytes flow evenly from start to finish."""
        started_ns, finished_ns = record.completion.started_ns, record.completion.finished_ns
        if self._one_second(started_ns, finished_ns):
            lane.moved_bytes += record.times * stored_bytes
            self._add_bytes(lane, record, finished_ns, nbytes)
            return
        from_ns = max(started_ns, self.window_start_ns)
        to_ns = min(finished_ns, self.window_end_ns)
        if to_ns <= from_ns:
            return
        self._inside(to_ns)
        length_ns = finished_ns - started_ns

        def flowed(amount: int, at_ns: int) -> int:
            return amount * (at_ns - started_ns) // length_ns

        lane.moved_bytes += record.times * (flowed(stored_bytes, to_ns) - flowed(stored_bytes, from_ns))
        for left_ns, right_ns in self.timeline.seconds_between(from_ns, to_ns):
            share = flowed(nbytes, right_ns) - flowed(nbytes, left_ns)
            self._add_bytes(lane, record, left_ns, share)

    def _one_second(self, from_ns: int, to_ns: int) -> bool:
        """True where both lie inside the window and in the same second: nothing has to be divided."""
        if not (self.window_start_ns <= from_ns and self._inside(to_ns)):
            return False
        zero_ns = self.window_start_ns
        return (from_ns - zero_ns) // NS_PER_SEC == (to_ns - zero_ns) // NS_PER_SEC

    def _add_bytes(self, lane: Lane, record: OpRecord, at_ns: int, nbytes: int) -> None:
        """So many bytes of each operation that the record stands for."""
        nbytes *= record.times
        lane.nbytes[record.purpose] += nbytes
        lane.bytes_by_entry[record.tokens, record.nbytes] += nbytes
        self.timeline.add(lane.column, at_ns, nbytes)

    def _decided_inside(self, at_ns: int) -> bool:
        """At the very end requests are cut off in no certain order: what they decide then counts for none."""
        return at_ns < self.window_end_ns and self._inside(at_ns)

    def lookup(self, lookup: Lookup) -> None:
        if not self._decided_inside(lookup.at_ns):
            return
        self.lookups[lookup.outcome, lookup.purpose, lookup.hit_type, lookup.tier] += lookup.times
        self.timeline.add(_LOOKUP_COLUMNS[lookup.outcome], lookup.at_ns, lookup.times)

    def eviction(self, eviction: Eviction) -> None:
        if not self._decided_inside(eviction.at_ns):
            return
        self.evictions[eviction.tier, eviction.below] += eviction.times
        self.evicted_bytes[eviction.tier, eviction.below] += eviction.times * eviction.nbytes

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        self.cache_call_ns += self._overlap(from_ns, to_ns)

    def room_wait(self, from_ns: int, to_ns: int, writes: int) -> None:
        inside_ns = self._overlap(from_ns, to_ns)
        if not inside_ns:
            return
        self.room_wait_ns += inside_ns
        self.room_waits += writes
        self.room_waits_at_end += writes if to_ns >= self.window_end_ns else 0

    def request(self, record: RequestRecord) -> None:
        if not self._inside(record.finished_ns):
            return
        self.requests.add(record)
        self.stay_ns += self._overlap(record.intended_ns, record.finished_ns)
        self.service_ns += self._overlap(record.started_ns, record.finished_ns)
        if record.failure is not None:
            self.timeline.add("failed_requests", record.finished_ns)
            return
        if record.recomputed_tokens is not None:
            self.storage_ttft.record(record.storage_ttft_ns)
        self.requests_over_time.record(record.finished_ns, record.end_to_end_ns)
        self.timeline.add("requests", record.finished_ns)
        self.timeline.add("tokens", record.finished_ns, record.generated_tokens)


_LOOKUP_COLUMNS = {Outcome.HIT: "hits", Outcome.MISS: "misses", Outcome.ERROR: "lookup_errors"}


def _piece_end(piece: tuple[int, int, int]) -> int:
    return piece[1]
