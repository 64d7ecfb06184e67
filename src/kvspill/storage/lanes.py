"""Threads that carry entries: first come first served, several lanes on one entry, answers to the loop."""

import _thread
import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import TypeVar

from kvspill.errors import NO_THREAD_REMEDY, KvspillError
from kvspill.records import Completion
from kvspill.storage.jobs import Job, Worker
from kvspill.threads import Daemon

T = TypeVar("T")
ClockNs = Callable[[], int]
_BEGIN_SECONDS_MAX = 2.0
_STARVED_SECONDS = 0.02


class Batch:
    """Jobs that are answered together."""

    __slots__ = ("future", "jobs", "left")

    def __init__(self, jobs: Sequence[Job], future: "asyncio.Future[list[Completion]]"):
        self.jobs = jobs
        self.future = future
        self.left = len(jobs)


class Lanes:
    """A fixed number of daemon threads; a stuck disk can hold them but never the process (E2)."""

    def __init__(self, name: str, threads: int, clock_ns: ClockNs):
        self._name = name
        self._count = threads
        self._clock_ns = clock_ns
        # A ticket lets one thread ride on one job; for each there is one token, which is what threads
        # wait for: the queue cannot put at the front, the deque cannot wait.
        self._tickets: deque[Job | None] = deque()
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        self._live: set[Job] = set()
        self._finished: list[Batch] = []
        self._posted = False
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def carry(self, jobs: Sequence[Job], taken_up: str = "piece") -> list[Completion]:
        """Have the jobs done and return their completions, in order. Who stops waiting stops the jobs."""
        try:
            return await self.submit(jobs, taken_up)
        except asyncio.CancelledError:
            for job in jobs:
                job.stop()
            raise

    def submit(self, jobs: Sequence[Job], taken_up: str = "piece") -> "asyncio.Future[list[Completion]]":
        """Queue the jobs; the future gets their completions, in order.

        taken_up: several threads may share a job (piece), one moves it alone (block), or one moves all of
        them, one after another (request).
        """
        future: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        now_ns = self._clock_ns()
        if self._stopping or not jobs:
            future.set_result([Completion(now_ns, now_ns, now_ns, 0, error="cancelled") for _ in jobs])
            return future
        self._loop = future.get_loop()
        self.start()
        batch = Batch(jobs, future)
        with self._lock:
            self._live.update(jobs)
        for job in jobs:
            job.submitted_ns = now_ns
            job.batch = batch
            job.alone = taken_up != "piece"
        if taken_up == "request":
            for job, following in pairwise(jobs):
                job.next = following
        self._enqueue(jobs[:1] if taken_up == "request" else jobs)
        return future

    def _enqueue(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._tickets.append(job)
            self._tokens.put(None)

    @property
    def stopping(self) -> bool:
        """True once cancelled: nothing is taken any more."""
        return self._stopping

    def start(self) -> None:
        """Start the threads, once."""
        if self._workers:
            return
        for index in range(self._count):
            worker = Worker()
            work = partial(or_starve, partial(self._work, worker), lambda: self._loop)
            worker.thread = Daemon(work, f"{self._name}-{index}")
            start_thread(worker.thread)
            self._workers.append(worker)

    def find_memory(self, nbytes: int, goes_on: Callable[[], bool]) -> None:
        """Touch so many bytes for reads of each thread to land in, for as long as the caller can spare."""
        for worker in self._workers:
            if nbytes and goes_on():
                worker.memory(nbytes)

    def cancel(self) -> None:
        """Stop every job: lanes finish their piece, what is queued is answered as cancelled."""
        self._stopping = True
        with self._lock:
            live = list(self._live)
        for job in live:
            job.stop()

    def join(self, until_ns: int) -> int:
        """Cancel, end the threads and wait for them until then at most; returns how many are stuck."""
        self.cancel()
        for _ in self._workers:
            self._tickets.append(None)
            self._tokens.put(None)
        for worker in self._workers:
            if worker.thread is not None:
                worker.thread.join(max(0.0, (until_ns - self._clock_ns()) / 1e9))
        return sum(1 for worker in self._workers if worker.thread is not None and worker.thread.is_alive())

    def stuck(self, now_ns: int, older_than_ns: int = 0) -> list[int]:
        """Ages of the system calls that threads are inside now, at least older_than_ns, oldest first."""
        since_ns: list[int] = []
        moving = set(self._carried_apart())
        for worker in self._workers:
            job, busy_since_ns = worker.moving, worker.busy_since_ns
            if job is not None and job.in_flight_ns() is not None:
                moving.add(job)
            elif busy_since_ns:
                since_ns.append(busy_since_ns)
        for job in moving:
            since_ns.extend(job.in_flight_ns() or ())
        ages_ns = sorted((now_ns - since for since in since_ns), reverse=True)
        return [age_ns for age_ns in ages_ns if age_ns >= older_than_ns]

    def _carried_apart(self) -> Iterable[Job]:
        """Jobs whose pieces others than these threads move."""
        return ()

    def _work(self, worker: Worker) -> None:
        while True:
            self._tokens.get()
            job = self._tickets.popleft()
            if job is None:
                return
            while job is not None:
                worker.busy_since_ns = self._clock_ns()
                job = self._ride(job, worker)
            worker.busy_since_ns = 0

    def _ride(self, job: Job, worker: Worker) -> Job | None:
        """Help with a job, or do it alone; returns the one that this thread takes up next, if any."""
        with job.lock:
            if job.closed:
                return None
            job.active += 1
        try:
            if not job.started_ns:
                self._begin(job, worker.busy_since_ns)
            if job.error is None:
                worker.moving = job
                job.move(worker)
        except BaseException as error:
            # A defect, or a panic of a client, must surface as a failed operation, not as a thread that died.
            job.fail_by(error)
        if worker.moving is not None:
            worker.moving, worker.busy_since_ns = None, self._clock_ns()
        with job.lock:
            job.active -= 1
            # A lane leaves when no piece is left to take, so the last one out has seen all of them moved.
            last = job.closed = job.active == 0
        if last:
            self._end(job)
        return job.next

    def _begin(self, job: Job, now_ns: int) -> None:
        job.started_ns = now_ns
        if self._stopping:
            job.stop()
        if job.error is not None:
            return
        # Only now may others join: until here there was but one ticket, so nobody waits for the opening.
        helpers = job.begin()
        for _ in range(0 if job.alone else helpers):
            self._tickets.appendleft(job)
            self._tokens.put(None)

    def _end(self, job: Job, finished_ns: int | None = None) -> None:
        try:
            job.end()
        except BaseException as error:
            job.fail_by(error)
        job.answer = job.complete(self._clock_ns() if finished_ns is None else finished_ns)
        # Without a cycle what has ended is gone at once, and its memory is used again while it is hot.
        batch, job.batch = job.batch, None
        assert batch is not None
        with self._lock:
            self._live.discard(job)
            batch.left -= 1
            if batch.left:
                return
            self._finished.append(batch)
            if self._posted:
                return
            self._posted = True
        post(batch.future.get_loop(), self._deliver)

    def _deliver(self) -> None:
        """On the loop: one wake-up answers for all batches that have finished by then."""
        with self._lock:
            finished, self._finished, self._posted = self._finished, [], False
        for batch in finished:
            if not batch.future.done():
                batch.future.set_result([job.answer for job in batch.jobs])


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Run callback on the loop, unless the loop has ended and nobody is left to tell.

    Without memory that is tried until there is some, and may be done twice.
    """
    while not loop.is_closed():
        try:
            loop.call_soon_threadsafe(callback)
            return
        except MemoryError:
            time.sleep(_STARVED_SECONDS)
        except RuntimeError:
            if not loop.is_closed():
                raise


def or_starve(work: Callable[[], object], loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
    """Do a thread's work. Where it dies of a lack of memory somebody waits in vain: the loop is ended."""
    try:
        work()
    except MemoryError:
        told = loop()
        if told is not None:
            post(told, _starve)


def _starve() -> None:
    raise MemoryError


async def on_thread(name: str, function: Callable[[], T]) -> T:
    """Run function on a daemon thread of its own and await its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    taken = threading.Lock()

    def work() -> None:
        if not taken.acquire(blocking=False):
            return
        try:
            result = function()
        except BaseException as error:
            # A panic of a client is no Exception, and would end the loop without a word.
            caught = error if isinstance(error, Exception) else RuntimeError(repr(error))
            post(loop, lambda: settle(None, caught))
        else:
            post(loop, lambda: settle(result, None))

    try:
        # Not as a Daemon, whose start would hold up the loop.
        _thread.start_new_thread(or_starve, (work, lambda: loop))
    except RuntimeError as error:
        raise _no_thread(name, error) from error
    # Where it has not begun after a while it never will: then the work is done here.
    late = loop.call_later(_BEGIN_SECONDS_MAX, work)
    try:
        return await future
    finally:
        late.cancel()


async def on_thread_or_here(name: str, function: Callable[[], T]) -> T:
    """The same for what must be done also where no further thread is to be had, and the loop has to wait."""
    try:
        return await on_thread(name, function)
    except NoThreadError:
        return function()


class NoThreadError(KvspillError):
    """The limits of memory or processes are reached."""


def start_thread(thread: Daemon) -> None:
    """Start a thread, or say what is in short supply."""
    try:
        thread.start()
    except RuntimeError as error:
        raise _no_thread(thread.name, error) from error


def _no_thread(name: str, error: RuntimeError) -> NoThreadError:
    return NoThreadError(f"{name}: {error}; lower --io-threads, or {NO_THREAD_REMEDY}")
