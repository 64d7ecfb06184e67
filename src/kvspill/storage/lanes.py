"""Threads that carry entries: first come first served, several lanes on one entry, answers to the loop."""

import asyncio
import errno
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

from kvspill.records import Completion
from kvspill.storage.buffers import map_memory
from kvspill.storage.fastio import Span, check_piece
from kvspill.storage.pieces import done_pieces
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, Verify

LANES_PER_ENTRY = 4
"""Pieces of one entry in flight at most (E2)."""

T = TypeVar("T")
ClockNs = Callable[[], int]


class Worker:
    """One thread's own state: the buffer that its reads land in, and since when it is at work."""

    __slots__ = ("_memory", "busy_since_ns", "thread")

    def __init__(self) -> None:
        self._memory: Bytes | None = None
        self.busy_since_ns = 0
        self.thread: threading.Thread | None = None

    def memory(self, nbytes: int) -> Bytes:
        """The thread's landing buffer, made when first needed."""
        if self._memory is None or len(self._memory) < nbytes:
            self._memory = map_memory(nbytes)
            # Touched here, so that the first system call's time is not that of finding memory.
            self._memory[::BLOCK_BYTES] = 0
        return self._memory


class Job:
    """One entry on its way. Subclasses say how it begins, how a lane moves its pieces and how it ends."""

    __slots__ = ("active", "batch", "closed", "detail", "error", "lock", "started_ns", "submitted_ns")

    def __init__(self) -> None:
        self.submitted_ns = 0
        self.started_ns = 0
        self.active = 0
        self.closed = False
        self.error: str | None = None
        self.detail = ""
        self.lock = threading.Lock()
        self.batch: _Batch | None = None

    def begin(self) -> int:
        """On the first lane: open what is needed; returns how many more lanes may help."""
        return 0

    def move(self, worker: Worker) -> None:
        """On every lane: move pieces until none is left or the job has failed."""

    def end(self) -> None:
        """On the last lane to leave, always: close what begin opened."""

    def stop(self) -> None:
        """Called from any thread: take no further piece. What is already ending is left alone."""
        with self.lock:
            if self.error is None and not self.closed:
                self.error = "cancelled"

    def complete(self, finished_ns: int) -> Completion:
        return Completion(
            self.submitted_ns, self.started_ns, finished_ns, 0, error=self.error, detail=self.detail
        )

    def fail(self, error: str, detail: str = "") -> None:
        """Keep the first failure: those after it are mostly its consequences."""
        with self.lock:
            if self.error is None:
                self.error, self.detail = error, detail

    def fail_os(self, error: OSError) -> None:
        self.fail(errno_name(error.errno or errno.EIO), str(error))


def errno_name(number: int) -> str:
    return errno.errorcode.get(number, f"errno_{number}")


class SpanJob(Job):
    """A job whose pieces are those of a span."""

    __slots__ = ("extra_device_ns", "failures", "span")

    def __init__(self, span: Span):
        super().__init__()
        self.span = span
        self.extra_device_ns = 0
        self.failures: list[str] = []

    def helpers(self) -> int:
        return max(0, min(LANES_PER_ENTRY, self.span.piece_count) - 1)

    def stop(self) -> None:
        super().stop()
        self.span.stop()

    def fail(self, error: str, detail: str = "") -> None:
        super().fail(error, detail)
        self.span.stop()

    def mismatch(self, memory: Bytes, piece: int, verify: Verify, base: Bytes) -> None:
        """Note how the piece in memory fails. The rest is read nevertheless: only that tells a torn
        object, which is right elsewhere, from a wrong one."""
        self.failures.append(check_piece(memory, self.span, piece, verify, base) or "corrupt")

    def verdict(self) -> str | None:
        kinds = set(self.failures)
        if not kinds:
            return None
        whole = len(self.failures) == self.span.piece_count
        return kinds.pop() if len(kinds) == 1 and (whole or "corrupt" in kinds) else "torn"

    def complete(self, finished_ns: int) -> Completion:
        verdict = self.verdict()
        if verdict is not None:
            self.fail(verdict, f"{len(self.failures)} of {self.span.piece_count} pieces failed verification")
        pieces = done_pieces(self.span.log)
        device_ns = pieces.union_ns() + self.extra_device_ns
        return Completion(
            self.submitted_ns, self.started_ns, finished_ns, device_ns, pieces, self.error, self.detail
        )


class _Batch:
    __slots__ = ("answers", "future", "jobs", "left")

    def __init__(self, jobs: Sequence[Job], future: "asyncio.Future[list[Completion]]"):
        self.jobs = jobs
        self.future = future
        self.left = len(jobs)
        self.answers: dict[int, Completion] = {}


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
        self._finished: list[_Batch] = []
        self._posted = False
        self._stopping = False

    def submit(self, jobs: Sequence[Job]) -> "asyncio.Future[list[Completion]]":
        """Queue the jobs; the future gets their completions, in order. Cancelling it stops the jobs."""
        future: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        now_ns = self._clock_ns()
        if self._stopping or not jobs:
            future.set_result([Completion(now_ns, now_ns, now_ns, 0, error="cancelled") for _ in jobs])
            return future
        self.start()
        batch = _Batch(jobs, future)
        future.add_done_callback(lambda done: _stop_if_cancelled(done, jobs))
        with self._lock:
            self._live.update(jobs)
        for job in jobs:
            job.submitted_ns = now_ns
            job.batch = batch
            self._tickets.append(job)
            self._tokens.put(None)
        return future

    def start(self) -> None:
        """Start the threads, once."""
        if self._workers:
            return
        for index in range(self._count):
            worker = Worker()
            worker.thread = threading.Thread(
                target=self._work, args=(worker,), name=f"{self._name}-{index}", daemon=True
            )
            self._workers.append(worker)
            worker.thread.start()

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
        """Ages of what threads are at now, oldest first, where at least older_than_ns."""
        ages = (now_ns - since for since in (worker.busy_since_ns for worker in self._workers) if since)
        return sorted((age for age in ages if age >= older_than_ns), reverse=True)

    def _work(self, worker: Worker) -> None:
        while True:
            self._tokens.get()
            job = self._tickets.popleft()
            if job is None:
                return
            worker.busy_since_ns = self._clock_ns()
            self._ride(job, worker)
            worker.busy_since_ns = 0

    def _ride(self, job: Job, worker: Worker) -> None:
        with job.lock:
            if job.closed:
                return
            job.active += 1
        try:
            if not job.started_ns:
                self._begin(job, worker.busy_since_ns)
            if job.error is None:
                job.move(worker)
        except OSError as error:
            job.fail_os(error)
        except Exception as error:
            # A defect must surface as a failed operation, not as a thread that silently died.
            job.fail("internal", repr(error))
        with job.lock:
            job.active -= 1
            # A lane leaves when no piece is left to take, so the last one out has seen all of them moved.
            last = job.closed = job.active == 0
        if last:
            self._end(job)

    def _begin(self, job: Job, now_ns: int) -> None:
        job.started_ns = now_ns
        if self._stopping:
            job.stop()
        if job.error is not None:
            return
        # Only now may others join: until here there was but one ticket, so nobody waits for the opening.
        for _ in range(job.begin()):
            self._tickets.appendleft(job)
            self._tokens.put(None)

    def _end(self, job: Job) -> None:
        try:
            job.end()
        except OSError as error:
            job.fail_os(error)
        except Exception as error:
            job.fail("internal", repr(error))
        completion = job.complete(self._clock_ns())
        batch = job.batch
        assert batch is not None
        with self._lock:
            self._live.discard(job)
            batch.answers[id(job)] = completion
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
                batch.future.set_result([batch.answers[id(job)] for job in batch.jobs])


def _stop_if_cancelled(future: "asyncio.Future[list[Completion]]", jobs: Sequence[Job]) -> None:
    if future.cancelled():
        for job in jobs:
            job.stop()


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Run callback on the loop, unless the loop has ended and nobody is left to tell."""
    if loop.is_closed():
        return
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise


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

    def work() -> None:
        try:
            result = function()
        except Exception as error:
            caught = error
            post(loop, lambda: settle(None, caught))
        else:
            post(loop, lambda: settle(result, None))

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future
