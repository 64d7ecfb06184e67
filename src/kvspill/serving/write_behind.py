"""Write-behind: new blocks wait in a bounded queue and are written while requests go on."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvspill.cache.cache import Cache
from kvspill.cache.options import Put
from kvspill.records import Purpose, Tier

BATCH_BLOCKS = 64
"""Blocks that are written by one call of the backend, where an engine does not say otherwise."""


@dataclass(frozen=True, slots=True)
class WriteBehindOptions:
    """How blocks are written behind the requests."""

    queue_blocks: int = 16_384
    """Most blocks that may wait; more are dropped and counted."""
    workers: int = 4
    """Batches under way at once: the share of the device that writes may take from reads."""
    batch_blocks: int = BATCH_BLOCKS
    max_wait_ns: int | None = None
    """Blocks that waited longer are dropped and counted."""
    through: bool = False
    """Write to the last tier at once and copy into DRAM, instead of the fastest tier with room."""
    promote: bool = True
    """Copy blocks that were read from storage into DRAM."""
    in_order: bool = False
    """What was handed over before is written before anything is called too much."""


@dataclass(slots=True)
class WriteCounts:
    """What became of the blocks that were handed over."""

    offered: int = 0
    written: int = 0
    failed: int = 0
    refused: int = 0
    dropped_full: int = 0
    dropped_late: int = 0
    promoted: int = 0
    promotions_dropped: int = 0
    queued_max: int = 0


@dataclass(slots=True, eq=False)
class Reservation:
    """Blocks that a request is going to hand over."""

    keys: Sequence[str]
    parents: Sequence[str | None] = ()
    nbytes: int = 0
    tokens: int = 0
    fail: Callable[[str], None] = lambda _reason: None
    """Fails the request that made them; without effect once it is over (S13)."""
    over: asyncio.Future[None] | None = None
    """Resolved at the end; made when somebody waits for it."""


@dataclass(slots=True, eq=False)
class _Job(Reservation):
    """Blocks in the queue or being written."""

    submitted_ns: int = 0
    promotion: bool = False


class WriteBehind:
    """Writers that hold no pin and keep no request waiting. Lives on the event loop."""

    def __init__(self, cache: Cache, clock_ns: Callable[[], int], options: WriteBehindOptions):
        self._cache = cache
        self._clock_ns = clock_ns
        self._options = options
        # Without DRAM above storage a promotion does nothing, and must not take a place in the queue.
        self._promotes = options.promote and any(tier.name is Tier.CPU for tier in cache.tiers[:-1])
        self._jobs: deque[_Job] = deque()
        self._pending: dict[str, Reservation] = {}
        self._queued = 0
        self._ended = 0
        self._working = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._failure: BaseException | None = None
        self.counts = WriteCounts()

    def pending(self, key: str) -> bool:
        """True from the announcement of a block until its write has ended."""
        return key in self._pending

    async def over(self, key: str) -> None:
        """Wait until a pending block has come one step further; nothing may be pinned meanwhile (C4)."""
        reservation = self._pending.get(key)
        if reservation is not None:
            if reservation.over is None:
                reservation.over = asyncio.get_running_loop().create_future()
            await asyncio.shield(reservation.over)

    def reserve(
        self,
        keys: Sequence[str],
        parents: Sequence[str | None],
        nbytes: int,
        tokens: int,
        fail: Callable[[str], None] = lambda _reason: None,
    ) -> Reservation:
        """Announce new blocks, parents first: a request that needs them waits for them."""
        reservation = Reservation(keys, parents, nbytes, tokens, fail)
        for key in keys:
            self._pending[key] = reservation
        return reservation

    def abandon(self, reservation: Reservation) -> None:
        """The blocks are not made after all; nothing to do where they were submitted."""
        self._end(reservation)

    async def submit(self, reservation: Reservation) -> None:
        """Hand over announced blocks; what the queue can't hold is dropped from the end."""
        keys, parents, size = reservation.keys, reservation.parents, self._options.batch_blocks
        counts = self.counts
        if self._failure is not None:
            # Nobody waits for a writer, so its failure must end the run by way of a request.
            raise self._failure
        counts.offered += len(keys)
        if self._options.in_order and self._options.queue_blocks - self._queued < len(keys):
            await self.settle()
        ended = -1
        while self._options.queue_blocks - self._queued < len(keys) and ended != self._ended:
            # A device that answers at once must have had its turn before anything is called too much.
            ended = self._ended
            await asyncio.sleep(0)
        kept = max(0, min(len(keys), self._options.queue_blocks - self._queued))
        counts.dropped_full += len(keys) - kept
        now_ns = self._clock_ns()
        for first in range(0, kept, size):
            last = min(first + size, kept)
            job = _Job(
                keys[first:last],
                parents[first:last],
                reservation.nbytes,
                reservation.tokens,
                reservation.fail,
                submitted_ns=now_ns,
            )
            for key in job.keys:
                self._pending[key] = job
            self._enqueue(job)
        self._end(reservation)

    def promote(self, keys: Sequence[str]) -> None:
        """Hand over blocks that were read from storage, to be copied into DRAM; no one depends on it."""
        if not self._promotes or not keys:
            return
        if self._queued + len(keys) > self._options.queue_blocks:
            self.counts.promotions_dropped += len(keys)
            return
        self._enqueue(_Job(keys, promotion=True, submitted_ns=self._clock_ns()))

    async def settle(self) -> None:
        """Wait until nothing is queued or under way."""
        while self._workers:
            await asyncio.gather(*self._workers)

    def _enqueue(self, job: _Job) -> None:
        self._jobs.append(job)
        self._queued += len(job.keys)
        self.counts.queued_max = max(self.counts.queued_max, self._queued)
        if self._working < self._options.workers and not self._stopped:
            self._working += 1
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._worker_done)

    def _worker_done(self, worker: "asyncio.Task[None]") -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None:
            self._failure = worker.exception()

    async def _work(self) -> None:
        try:
            while self._jobs and not self._stopped:
                await self._work_off(self._jobs.popleft())
        finally:
            # At once, not by a callback: a job that comes next must find that nobody works.
            self._working -= 1

    async def _work_off(self, job: _Job) -> None:
        self._queued -= len(job.keys)
        try:
            await self._do(job)
        finally:
            self._ended += 1
            self._end(job)

    def _end(self, reservation: Reservation) -> None:
        for key in reservation.keys:
            if self._pending.get(key) is reservation:
                del self._pending[key]
        if reservation.over is not None and not reservation.over.done():
            reservation.over.set_result(None)

    async def _do(self, job: _Job) -> None:
        if job.promotion:
            await self._promote(job.keys)
            return
        limit_ns = self._options.max_wait_ns
        if limit_ns is not None and self._clock_ns() - job.submitted_ns > limit_ns:
            self.counts.dropped_late += len(job.keys)
            return
        level = len(self._cache.tiers) - 1 if self._options.through else 0
        put = await self._store(job, level)
        self._note(job, put)
        if put.cancelled:
            # The run is over: requests that still wait learn it from the end of this job.
            self._stopped = True
        elif self._options.through and self._promotes:
            if put.refused:
                # Storage is full and gives nothing up; memory can hold them nevertheless.
                self._blame(job, await self._store(job, 0))
            await self._promote(job.keys)

    async def _store(self, job: _Job, level: int) -> Put:
        """Blocks have their content by their keys: what is there already is not written again."""
        return await self._cache.put(
            job.keys,
            job.nbytes,
            Purpose.PREFILL,
            tokens=job.tokens,
            parents=job.parents,
            level=level,
            replace=False,
        )

    async def _promote(self, keys: Sequence[str]) -> None:
        promoted = await self._cache.promote(keys)
        self.counts.promoted += promoted

    def _blame(self, job: _Job, put: Put) -> None:
        """C3: what fails, a demotion included, fails the request that put it, as long as that is not over."""
        if put.demotion_error is not None:
            job.fail(f"demotion: {put.demotion_error}")
        # Room that can't be made although things are evicted is room that faults have taken.
        if put.failed or (put.refused > 0 and self._cache.tiers[-1].evicts):
            job.fail("block write")

    def _note(self, job: _Job, put: Put) -> None:
        self._blame(job, put)
        self.counts.written += len(put.entries)
        self.counts.failed += len(put.failed)
        self.counts.refused += put.refused
