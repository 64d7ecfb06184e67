"""Copies between an arena and memory: by compiled threads, which need no interpreter, else by Python's."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kvspill.errors import NO_THREAD_REMEDY
from kvspill.storage.arena import PAGE_BYTES, Arena, Pages
from kvspill.storage.buffers import DataPlane
from kvspill.storage.compiled import compiled
from kvspill.storage.fastio import Span
from kvspill.storage.jobs import Job, SpanJob
from kvspill.storage.lanes import ClockNs, Lanes, NoThreadError
from kvspill.storage.stamps import Verify

_compiled = compiled("_copies", version=3)

COMPILED = _compiled is not None
_TOGETHER = 4
"""Entries of one turn of the loop that are handed over in one go: each time a thread may have to be woken."""


class CopyJob(SpanJob):
    """An entry that is copied page by page: read, or written from a sample of the base."""

    __slots__ = ("pages", "verify")

    def __init__(self, span: Span, verify: Verify):
        super().__init__(span)
        self.pages: Pages | None = None
        """Where it lies in the arena, from its beginning on."""
        self.verify = verify

    def by_python(self) -> bool:
        """Whether more is to be done than to copy between the arena and memory that is ready."""
        return False

    def sample(self) -> slice | None:
        """The part of the base that is written; None where it is read."""
        return None


class CopyLanes(Lanes):
    """Lanes whose entries go to compiled threads, where those were built.

    The loop hands an entry over and collects what has ended, so that no thread waits for the interpreter:
    with one for each processor that would take longer than copying a page.
    """

    def __init__(self, name: str, threads: int, clock_ns: ClockNs, arena: Arena, plane: DataPlane):
        super().__init__(name, threads, clock_ns)
        self._arena = arena
        self._plane = plane
        self._pool = None
        if _compiled is not None:
            try:
                self._pool = _compiled.Pool(threads, PAGE_BYTES, arena.page_bytes, arena.memory, plane.base)
            except OSError as error:
                raise NoThreadError(
                    f"{name}: {error}; lower --dram-threads, or {NO_THREAD_REMEDY}"
                ) from error
        self._collects_on: asyncio.AbstractEventLoop | None = None
        self._copied: set[CopyJob] = set()
        """Entries that the compiled threads have."""
        self._rows: list[tuple[Any, ...]] = []
        """Entries that are handed over together, at the end of this turn of the loop at the latest."""
        self._handed_over = False
        """Whether one was in this turn."""

    def join(self, until_ns: int) -> int:
        self.cancel()
        stuck = 0
        if self._pool is not None:
            stuck = self._pool.close(max(0.0, (until_ns - self._clock_ns()) / 1e9))
        return stuck + super().join(until_ns)

    def leave_loop(self) -> None:
        """On the loop, after join: answer what has ended since, and be called no more."""
        if self._collects_on is not None:
            assert self._pool is not None
            self._collects_on.remove_reader(self._pool.fileno())
            self._collects_on = None
            self._end_turn()
            self._collect()

    def _carried_apart(self) -> Iterable[Job]:
        return tuple(self._copied)

    def _enqueue(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if self._pool is None or not isinstance(job, CopyJob) or job.by_python():
                super()._enqueue((job,))
            elif (row := self._row(job)) is not None:
                self._rows.append(row)
        if not self._rows:
            return
        assert self._pool is not None
        loop = asyncio.get_running_loop()
        if self._collects_on is not loop:
            self._collects_on = loop
            loop.add_reader(self._pool.fileno(), self._collect)
        if not self._handed_over:
            # The first goes at once: where it is the only one, nothing waits.
            self._handed_over = True
            loop.call_soon(self._end_turn)
            self._hand_over()
        elif len(self._rows) >= _TOGETHER:
            self._hand_over()

    def _end_turn(self) -> None:
        self._handed_over = False
        self._hand_over()

    def _hand_over(self) -> None:
        rows, self._rows = self._rows, []
        if rows and not self._stopping:
            assert self._pool is not None
            self._pool.submit(rows)
            return
        for job, *_ in rows:
            self._copied.discard(job)
            job.stop()
            job.started_ns = job.submitted_ns
            self._end(job)

    def _row(self, job: CopyJob) -> tuple[Any, ...] | None:
        """What the compiled threads need to know of an entry; None where it has failed already."""
        lanes = 1 + job.begin()
        if job.error is not None:
            job.started_ns = job.submitted_ns
            self._end(job)
            return None
        assert job.pages is not None, "an entry without a fault has its pages"
        span, sample = job.span, job.sample()
        self._copied.add(job)
        return (
            job,
            sample is not None,
            0 if sample is None else sample.start,
            0 if sample is None else (sample.stop - sample.start) // PAGE_BYTES,
            job.pages,
            span.log,
            lanes,
            span.total_bytes,
            span.checked_blocks,
            span.identity.key_hash,
            span.identity.generation,
            job.verify,
        )

    def _collect(self) -> None:
        """On the loop: end what the threads have copied, and answer for it."""
        assert self._pool is not None
        # No wake-up is needed for what is delivered here.
        with self._lock:
            self._posted = True
        for job, started_ns, finished_ns, wrong in self._pool.collect():
            self._copied.discard(job)
            job.started_ns = started_ns
            if wrong:
                self._look_at_wrong(job)
            with job.lock:
                job.closed = True
            self._end(job, finished_ns)
        self._deliver()

    def _look_at_wrong(self, job: CopyJob) -> None:
        """Say of each piece that was not what was written how it fails; it is in the arena still."""
        assert job.pages is not None
        there, lengths = self._arena.source(job.pages), job.span.log[1:, 2]
        for piece in np.flatnonzero(lengths < 0).tolist():
            offset, nbytes = job.span.extent(piece)
            found = np.concatenate(there.buffers(offset, nbytes))
            job.mismatch(found, piece, job.verify, self._plane.base)
        np.abs(lengths, out=lengths)
