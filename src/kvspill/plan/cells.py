"""Cells of a calibration: a few workers ask a backend for entries of one size, in real or in model time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvspill.errors import KvspillError
from kvspill.records import NS_PER_SEC, UNLIMITED_BYTES, Completion, Piece, Verb
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.world import World

_SKIPPED_SHARE = 0.25
"""The first part of a cell is left out: lanes fill, and what a pause earned is spent."""
_POINTS_MIN = 4
_PARTS = 8
STORED = 4
_STILL_SECONDS_MIN = 1.0
_STILL_TIMES = 10
"""Nothing was completed for so many times as long as a piece usually takes, and for a second: it hung."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is asked for at once: so many reads and writes of entries of one size, again and again."""

    name: str
    nbytes: int
    readers: int = 0
    writers: int = 0
    seconds: float = 3.0
    pause_seconds: float = 0.0
    """Between two operations of a worker: long enough, and each finds the device idle."""
    rest_seconds: float = 0.0
    """Before the cell."""
    once: bool = False
    """Each worker does one operation, whatever the time."""
    times: int = 1
    """So often then: all workers begin together, and again after a pause."""
    removals_max: int = 0
    """So many deletes of a writer may be under way beside its writes: runs don't wait for them either, but
    each write may take longer then."""
    part: int = 1
    """Its pieces are the usual ones, or smaller by this factor."""
    write_bytes_max: int = UNLIMITED_BYTES
    """The cell ends once so much is written: a quick device needs less time."""

    @property
    def stored_entries(self) -> int:
        """Entries that it reads, where none of their size are there yet."""
        return self.readers if self.once else STORED

    def written_at_most_bytes(self) -> int:
        """A bound that holds whatever the speed of the device."""
        if self.once:
            return self.writers * self.nbytes * self.times
        if not self.writers or not self.pause_seconds:
            return self.write_bytes_max if self.writers else 0
        return self.writers * self.nbytes * (1 + int(self.seconds / self.pause_seconds))


@dataclass(slots=True)
class _Course:
    """How long a cell goes on."""

    end_ns: int
    left_bytes: int
    """To be written before it ends."""

    def may_write(self, nbytes: int, now_ns: int) -> bool:
        """Take so many bytes; where they are used up, the cell ends now for those who read, too."""
        if now_ns >= self.end_ns:
            return False
        if nbytes > self.left_bytes:
            self.end_ns = now_ns
            return False
        self.left_bytes -= nbytes
        return True


@dataclass(slots=True)
class Seen:
    """What one direction of a cell did."""

    completions: list[Completion] = field(default_factory=list)
    nbytes: int = 0
    began_ns: int = 0
    ended_ns: int = 0

    @property
    def moved_bytes(self) -> int:
        return self.nbytes * len(self.completions)

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds since the cell began, and the bytes moved by then, by pieces where they are known."""
        rows = [
            (end_ns, nbytes)
            for done in self.completions
            for _start, end_ns, nbytes in done.pieces or _parts(done, self.nbytes)
        ]
        rows.sort()
        ends = np.array([end_ns for end_ns, _ in rows], dtype=np.float64)
        moved = np.cumsum([nbytes for _, nbytes in rows], dtype=np.float64)
        return (ends - self.began_ns) / NS_PER_SEC, moved

    def still_seconds(self) -> float:
        """The longest time in which nothing was completed though something was asked for; 0 where the usual
        times of pieces explain it."""
        taken_ns = [end_ns - start_ns for done in self.completions for start_ns, end_ns, _ in done.pieces]
        if not taken_ns:
            return 0.0
        longest_ns, before_ns = 0, self.began_ns
        for end_ns, asked_ns in sorted(
            (end_ns, done.submitted_ns) for done in self.completions for _start_ns, end_ns, _ in done.pieces
        ):
            longest_ns = max(longest_ns, end_ns - max(before_ns, asked_ns))
            before_ns = end_ns
        least_ns = max(_STILL_SECONDS_MIN * NS_PER_SEC, _STILL_TIMES * float(np.median(taken_ns)))
        return longest_ns / NS_PER_SEC if longest_ns > least_ns else 0.0

    def bytes_per_sec(self) -> float:
        """The slope of the curve: a count between two moments would depend on which moments they are.

        Where it hung, the whole time counts, or a pause beyond the end of the cell would show nowhere.
        """
        seconds, moved = self.curve()
        if self.still_seconds():
            return float(moved[-1] / seconds[-1])
        length = (self.ended_ns - self.began_ns) / NS_PER_SEC
        inside = (seconds >= _SKIPPED_SHARE * length) & (seconds <= length)
        if inside.sum() < _POINTS_MIN:
            return float(moved[-1] / seconds[-1]) if len(seconds) else 0.0
        return float(np.polyfit(seconds[inside], moved[inside], 1)[0])

    def in_flight(self) -> tuple[float, float]:
        """Pieces in flight on the average, and how long one takes in seconds."""
        pieces = np.array(
            [piece for done in self.completions for piece in done.pieces], dtype=np.float64
        ).reshape(-1, 3)
        length_ns = self.ended_ns - self.began_ns
        inside = pieces[pieces[:, 1] >= self.began_ns + _SKIPPED_SHARE * length_ns]
        inside = inside[inside[:, 1] <= self.ended_ns]
        if not len(inside):
            return 0.0, 0.0
        took_ns = inside[:, 1] - inside[:, 0]
        window_ns = (1 - _SKIPPED_SHARE) * length_ns
        return float(took_ns.sum() / window_ns), float(took_ns.mean() / NS_PER_SEC)

    def median_seconds(self, what: str) -> float:
        """The median of a completion's time: total_ns, device_ns or host_ns."""
        times_ns = [getattr(done, what) for done in self.completions]
        return float(np.median(times_ns)) / NS_PER_SEC if times_ns else 0.0


@dataclass(slots=True)
class Point:
    """A cell and what was seen in it."""

    cell: Cell
    reads: Seen
    writes: Seen
    delete_ns: list[int] = field(default_factory=list)

    def of(self, verb: Verb) -> Seen:
        return self.reads if verb is Verb.READ else self.writes


class Bench:
    """A backend with entries to read, on which cells are held."""

    def __init__(self, world: World, backend: Backend):
        self._world = world
        self._backend = backend
        self._stored: dict[int, list[ObjectRef]] = {}
        self._number = 0
        self.written_bytes = 0

    async def store(self, nbytes: int, count: int) -> None:
        """Write entries that cells of that size will read."""
        refs = [ObjectRef(f"stored{nbytes}_{number}", 1, nbytes) for number in range(count)]
        _check(await self._backend.write([WriteItem(ref) for ref in refs]))
        self.written_bytes += nbytes * count
        self._stored[nbytes] = refs

    async def hold(self, cell: Cell) -> Point:
        """Let the workers ask until the time is over; what they wait for then is waited for."""
        if cell.rest_seconds:
            await self._world.sleep_ns(round(cell.rest_seconds * NS_PER_SEC))
        if cell.readers and cell.nbytes not in self._stored:
            await self.store(cell.nbytes, cell.stored_entries)
        began_ns = self._world.now_ns()
        course = _Course(began_ns + round(cell.seconds * NS_PER_SEC), cell.write_bytes_max)
        reads, writes = (Seen(nbytes=cell.nbytes, began_ns=began_ns) for _ in range(2))
        point = Point(cell, reads, writes)
        for time in range(cell.times):
            if time:
                await self._pause(cell)
            readers = (self._reads(cell, point, number, course) for number in range(cell.readers))
            writers = (self._writes(cell, point, course) for _ in range(cell.writers))
            await asyncio.gather(*readers, *writers)
        for seen in (point.reads, point.writes):
            seen.ended_ns = self._world.now_ns() if cell.once else course.end_ns
        return point

    async def _reads(self, cell: Cell, point: Point, number: int, course: _Course) -> None:
        refs = self._stored[cell.nbytes]
        while self._world.now_ns() < course.end_ns:
            done = await self._backend.read([refs[number % len(refs)]])
            number += max(1, cell.readers)
            point.reads.completions += _check(done)
            if cell.once:
                return
            await self._pause(cell)

    async def _writes(self, cell: Cell, point: Point, course: _Course) -> None:
        before: ObjectRef | None = None
        removals: list[asyncio.Task[None]] = []
        try:
            while course.may_write(cell.nbytes, self._world.now_ns()):
                self._number += 1
                self.written_bytes += cell.nbytes
                ref = ObjectRef(f"written{self._number}", 1, cell.nbytes)
                point.writes.completions += _check(await self._backend.write([WriteItem(ref)]))
                removals.append(self._remove(point, before))
                while len(removals) > cell.removals_max:
                    await removals.pop(0)
                before = ref
                if cell.once:
                    break
                await self._pause(cell)
            removals.append(self._remove(point, before))
            for removing in removals:
                await removing
        finally:
            # Where a write failed, nobody else hears how the deletes beside it ended.
            await asyncio.gather(*removals, return_exceptions=True)

    def _remove(self, point: Point, ref: ObjectRef | None) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self._delete(point, ref))

    async def _delete(self, point: Point, ref: ObjectRef | None) -> None:
        if ref is not None:
            (done,) = _check(await self._backend.delete([ref]))
            point.delete_ns.append(done.total_ns)

    async def _pause(self, cell: Cell) -> None:
        if cell.pause_seconds:
            await self._world.sleep_ns(round(cell.pause_seconds * NS_PER_SEC))


def _parts(done: Completion, nbytes: int) -> list[Piece]:
    """A modelled transfer has no pieces: its bytes lie evenly between its start and its end (S4)."""
    step_ns = (done.finished_ns - done.started_ns) / _PARTS
    return [
        (done.started_ns, round(done.started_ns + (number + 1) * step_ns), nbytes // _PARTS)
        for number in range(_PARTS)
    ]


def _check(completions: Sequence[Completion]) -> Sequence[Completion]:
    failed = next((done for done in completions if done.error is not None), None)
    if failed is not None:
        raise KvspillError(
            f"an operation of the calibration failed: {failed.error} {failed.detail}; check the device, its "
            "free space and the kernel log"
        )
    return completions
