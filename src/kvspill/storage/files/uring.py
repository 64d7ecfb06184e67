"""The io_uring engine: one thread keeps the pieces of many entries in flight, a few others open and close."""

import errno
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from kvspill.storage.base import Landing
from kvspill.storage.buffers import DataPlane, map_memory
from kvspill.storage.fastio import BUSY_MAX, Status, rest_of
from kvspill.storage.files.jobs import FileJob, ReadJob, WriteJob
from kvspill.storage.files.ring import Ring
from kvspill.storage.jobs import LANES_PER_ENTRY, Job, Worker
from kvspill.storage.lanes import ClockNs, Lanes, or_starve, start_thread
from kvspill.storage.mover import Mover
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, Verify, block_padded, stamp
from kvspill.threads import Daemon

_HELPERS_MAX = 8
_SPARE_LANDINGS = LANES_PER_ENTRY
"""Landing buffers beyond the pieces in flight: the next reads go out before the last ones are checked."""


class _Entry:
    """One entry between its opening and its closing; the ring thread's own."""

    __slots__ = ("in_flight", "job", "left", "unchecked")

    def __init__(self, job: FileJob):
        self.job = job
        self.left = job.span.piece_count
        """Pieces not moved yet."""
        self.in_flight = 0
        self.unchecked = 0

    @property
    def weight(self) -> int:
        """Places that the entry will need among those in flight."""
        return min(LANES_PER_ENTRY, self.left)


class _Flight:
    """One piece on its way, and the memory that the kernel reads from or writes to."""

    __slots__ = ("buffers", "busy", "entry", "landing", "lease", "moved", "piece", "start_ns")

    def __init__(self, entry: _Entry, piece: int):
        self.entry = entry
        self.piece = piece
        self.buffers: Sequence[Any] = ()
        self.landing: Bytes | None = None
        self.lease: AbstractContextManager[Bytes] | None = None
        self.moved = 0
        self.busy = 0
        """How often the kernel was too busy to take it."""
        self.start_ns = 0


class RingLanes(Lanes):
    """What Lanes does for read and write jobs, with the pieces on a ring. Its threads only open and close
    (begin and end of a job); the ring's thread takes a job in between and never blocks on metadata."""

    def __init__(self, name: str, depth: int, clock_ns: ClockNs, plane: DataPlane):
        super().__init__(f"{name}-open", min(depth, _HELPERS_MAX), clock_ns)
        self._depth = depth
        self._plane = plane
        self._ring = Ring(depth)
        self._thread = Daemon(partial(or_starve, self._run, lambda: self._loop), f"{name}-ring")
        self._started = False
        self._leaving = False
        self._waiting: deque[Job] = deque()
        self._opened: deque[Job] = deque()
        self._entries: dict[Job, _Entry] = {}
        self._filling: list[_Entry] = []
        self._flights: dict[int, _Flight] = {}
        self._unchecked: deque[_Flight] = deque()
        self._reserved = 0
        self._tag = 0
        self._landings: list[Bytes] = []
        self._landings_made = 0
        self._landings_max = depth + _SPARE_LANDINGS
        self._broken: OSError | None = None
        self._retired: list[object] = []

    def start(self) -> None:
        super().start()
        if not self._started:
            start_thread(self._thread)
            self._started = True

    def find_memory(self, nbytes: int, goes_on: Callable[[], bool]) -> None:
        """The pieces in flight land in memory of the ring, not of its threads."""
        while nbytes and self._landings_made < self._landings_max and goes_on():
            self._landings_made += 1
            self._landings.append(_touched(map_memory(nbytes)))

    def cancel(self) -> None:
        super().cancel()
        self._ring.wake()

    def join(self, until_ns: int) -> int:
        self.cancel()
        self._leaving = True
        self._ring.wake()
        if self._started:
            self._thread.join(max(0.0, (until_ns - self._clock_ns()) / 1e9))
        # Only now: what the ring has handed over to be closed comes before the threads' end.
        stuck = super().join(until_ns)
        if self._thread.is_alive():
            # The kernel still has the memory of what is in flight: ring and buffers stay as they are.
            return stuck + 1
        self._ring.close()
        return stuck

    def _carried_apart(self) -> Iterable[Job]:
        return list(self._entries)

    def _enqueue(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)
        self._ring.wake()

    def _ride(self, job: Job, worker: Worker) -> Job | None:
        """On a helper: open a job and hand it to the ring, or close one that the ring is done with."""
        if job.closed:
            self._end(job)
            if job.next is not None:
                self._enqueue([job.next])
            return None
        job.started_ns = worker.busy_since_ns
        if self._stopping:
            job.stop()
        if job.error is None:
            try:
                job.begin()
            except Exception as error:
                # A defect must surface as a failed operation, not as a thread that silently died.
                job.fail_by(error)
        self._opened.append(job)
        self._ring.wake()
        return None

    def _run(self) -> None:
        """The ring's thread: note what has landed, send what may go, and only then look at the data."""
        while not (self._leaving and not self._entries and not self._waiting):
            if not self._unchecked:
                self._ring.wait()
            self._land()
            while self._opened:
                entry = self._entries[self._opened.popleft()]
                self._filling.append(entry)
            self._fill()
            self._admit()
            if self._unchecked:
                self._check(self._unchecked.popleft())

    def _admit(self) -> None:
        """Let entries in, in order, while places are left; what was cancelled needs none."""
        while self._waiting and (self._reserved < self._depth or self._waiting[0].error is not None):
            job = self._waiting.popleft()
            assert isinstance(job, FileJob)
            entry = self._entries[job] = _Entry(job)
            self._reserved += entry.weight
            super()._enqueue((job,))

    def _fill(self) -> None:
        """Send pieces, oldest entry first, as many as may be in flight (E2)."""
        for entry in list(self._filling):
            job, more = entry.job, True
            while more and entry.in_flight < LANES_PER_ENTRY and len(self._flights) < self._depth:
                piece = job.span.take()
                more = piece is not None
                if piece is not None:
                    self._send(entry, piece)
            if not more or job.error is not None:
                self._filling.remove(entry)
                self._close_if_done(entry)

    def _send(self, entry: _Entry, piece: int) -> None:
        flight = _Flight(entry, piece)
        offset, nbytes = entry.job.span.extent(piece)
        try:
            self._provide(flight, offset, nbytes)
        except Exception as error:
            self._give_back(flight)
            entry.job.fail_by(error)
            return
        flight.start_ns = entry.job.span.begin(piece)
        self._submit(flight)

    def _provide(self, flight: _Flight, offset: int, nbytes: int) -> None:
        """Memory for a piece: a landing buffer, stamped base data, or what the source lends."""
        job = flight.entry.job
        if isinstance(job, ReadJob):
            flight.landing = self._landing(job.span.piece_bytes, job.site.landing)
            flight.buffers = [flight.landing[:nbytes]]
        elif isinstance(job, WriteJob) and job.source is not None:
            flight.buffers = job.source.buffers(offset, nbytes)
        else:
            lease = self._plane.lease(block_padded(nbytes))
            memory = lease.__enter__()
            flight.lease = lease
            stamp(memory, job.span.identity, offset, nbytes)
            flight.buffers = [memory[:nbytes]]

    def _landing(self, nbytes: int, beyond: Landing | None) -> Bytes:
        while not self._landings and self._landings_made >= self._landings_max:
            self._check(self._unchecked.popleft())
        if self._landings:
            return self._landings.pop()
        self._landings_made += 1
        return _touched(map_memory(nbytes) if beyond is None else beyond.buffer(nbytes))

    def _submit(self, flight: _Flight) -> None:
        """Send what is left of a piece."""
        entry = flight.entry
        offset = entry.job.span.place(flight.piece) + flight.moved
        self._tag += 1
        self._flights[self._tag] = flight
        entry.in_flight += 1
        if self._broken is None:
            write = isinstance(entry.job, WriteJob)
            try:
                self._ring.submit(entry.job.fd, write, flight.buffers, offset, self._tag)
                return
            except OSError as error:
                # The kernel may yet take this request, so its memory is never used for another one.
                self._broken = error
                self._retired.append((flight.landing, flight.lease, flight.buffers))
                flight.landing, flight.lease = None, None
        del self._flights[self._tag]
        entry.in_flight -= 1
        entry.job.fail_os(self._broken)
        self._give_back(flight)

    def _land(self) -> None:
        landed = self._ring.reap()
        now_ns = time.monotonic_ns()
        for tag, answer in landed:
            flight = self._flights.pop(tag)
            flight.entry.in_flight -= 1
            self._note(flight, answer, now_ns)

    def _note(self, flight: _Flight, answer: int, now_ns: int) -> None:
        entry = flight.entry
        job, span = entry.job, entry.job.span
        _, nbytes = span.extent(flight.piece)
        if answer in (-errno.EAGAIN, -errno.EINTR) and flight.busy < BUSY_MAX:
            flight.busy += 1
            return self._resume(flight, 0)
        if 0 < answer < nbytes - flight.moved:
            return self._resume(flight, answer)
        if answer == -errno.EINVAL and flight.moved:
            # Direct I/O stopped between two blocks, as at the end of a file: it can't be resumed there.
            answer = 0
        flight.moved += max(0, answer)
        if answer < 0:
            job.fail_answer((Status.FAILED, flight.piece, -answer))
        elif flight.moved < nbytes:
            job.fail_answer((Status.SHORT, flight.piece, flight.moved))
        else:
            span.note(flight.piece, flight.start_ns, now_ns, nbytes)
            self._reserved -= entry.weight
            entry.left -= 1
            self._reserved += entry.weight
            if isinstance(job, ReadJob) and (job.site.verify is not Verify.OFF or job.site.landing):
                entry.unchecked += 1
                return self._unchecked.append(flight)
        self._give_back(flight)
        return self._close_if_done(entry)

    def _resume(self, flight: _Flight, moved: int) -> None:
        """As with threads, what is left of a piece is sent again."""
        flight.moved += moved
        flight.buffers = rest_of(flight.buffers, moved)
        flight.entry.job.span.count_resumed()
        self._submit(flight)
        self._close_if_done(flight.entry)

    def _check(self, flight: _Flight) -> None:
        entry, job, memory = flight.entry, flight.entry.job, flight.landing
        assert memory is not None
        assert isinstance(job, ReadJob)
        site, span, piece = job.site, job.span, flight.piece
        try:
            if site.landing is not None:
                berth = site.landing.berth()
                berth.send(memory[: span.extent(piece)[1]], job.expected(piece))
                job.failures += berth.arrive()
            else:
                job.check(memory, piece, site.verify, site.plane.base)
        except Exception as error:
            job.fail_by(error)
        entry.unchecked -= 1
        self._give_back(flight)
        self._close_if_done(entry)

    def _give_back(self, flight: _Flight) -> None:
        if flight.landing is not None:
            self._landings.append(flight.landing)
        if flight.lease is not None:
            flight.lease.__exit__(None, None, None)
        flight.landing, flight.lease, flight.buffers = None, None, ()

    def _close_if_done(self, entry: _Entry) -> None:
        """Hand an entry to be closed once nothing of it is left to send, in flight or unchecked."""
        job = entry.job
        if entry.in_flight or entry.unchecked or entry in self._filling or job.closed:
            return
        with job.lock:
            job.closed = True
        del self._entries[job]
        self._reserved -= entry.weight
        super()._enqueue((job,))


def _touched(memory: Bytes) -> Bytes:
    memory[::BLOCK_BYTES] = 0
    return memory


def by_ring(mover: Mover, threads: int, write_threads: int, clock_ns: ClockNs, plane: DataPlane) -> Mover:
    """The same mover with rings in the place of its threads; raises RingError where there can be none."""
    loads = stores = RingLanes("kvspill-io", threads, clock_ns, plane)
    if write_threads:
        try:
            stores = RingLanes("kvspill-store", write_threads, clock_ns, plane)
        except Exception:
            loads.join(clock_ns())
            raise
    return replace(mover, loads=loads, stores=stores)
