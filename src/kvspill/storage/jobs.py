"""One entry's way through the threads: how it begins, how lanes move its pieces, how it ends."""

import errno
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvspill.machine.gpu import DeviceError
from kvspill.records import Completion
from kvspill.storage.buffers import map_memory
from kvspill.storage.fastio import Span, check_piece
from kvspill.storage.pieces import done_pieces
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, Verify
from kvspill.threads import Daemon

if TYPE_CHECKING:
    from kvspill.storage.lanes import Batch

LANES_PER_ENTRY = 4
"""Pieces of one entry in flight at most (E2)."""


class Worker:
    """One thread's own state: the buffer that its reads land in, and since when it is at work."""

    __slots__ = ("_memory", "busy_since_ns", "moving", "thread")

    def __init__(self) -> None:
        self._memory: Bytes | None = None
        self.busy_since_ns = 0
        self.moving: Job | None = None
        """The job whose pieces the thread is moving now; the job knows since when."""
        self.thread: Daemon | None = None

    def memory(self, nbytes: int) -> Bytes:
        """The thread's landing buffer, made when first needed."""
        if self._memory is None or len(self._memory) < nbytes:
            self._memory = map_memory(nbytes)
            # Touched here, so that the first system call's time is not that of finding memory.
            self._memory[::BLOCK_BYTES] = 0
        return self._memory


class Job:
    """One entry on its way. Subclasses say how it begins, how a lane moves its pieces and how it ends."""

    __slots__ = (
        *("active", "alone", "answer", "batch", "closed", "detail", "error", "lock", "next"),
        *("started_ns", "submitted_ns"),
    )
    answer: Completion
    """Set when it has ended."""

    def __init__(self) -> None:
        self.submitted_ns = 0
        self.started_ns = 0
        self.active = 0
        self.closed = False
        self.error: str | None = None
        self.detail = ""
        self.lock = threading.Lock()
        self.batch: Batch | None = None
        """Those that are answered together, until this one has ended."""
        self.alone = False
        """True where no other thread may help with it."""
        self.next: Job | None = None
        """What its thread takes up afterwards."""

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

    def in_flight_ns(self) -> list[int] | None:
        """When each system call now under way began, or None where the job does not know."""
        return None

    def fail(self, error: str, detail: str = "") -> None:
        """Keep the first failure: those after it are mostly its consequences."""
        with self.lock:
            if self.error is None:
                self.error, self.detail = error, detail

    def fail_by(self, error: BaseException) -> None:
        """Fail by what was raised, whatever that is."""
        if isinstance(error, OSError):
            self.fail_os(error)
        elif isinstance(error, DeviceError):
            self.fail(error.kind, str(error))
        elif isinstance(error, MemoryError):
            self.fail(errno_name(errno.ENOMEM))
        else:
            self.fail("internal", repr(error))

    def fail_os(self, error: OSError) -> None:
        self.fail(errno_name(error.errno or errno.EIO), str(error))


class RemovalJob(Job):
    """Removes an object: no bytes move, and the time inside the call is the device's."""

    __slots__ = ("device_ns",)

    def __init__(self) -> None:
        super().__init__()
        self.device_ns = 0

    def complete(self, finished_ns: int) -> Completion:
        done = super().complete(finished_ns)
        done.device_ns = min(self.device_ns, finished_ns - self.started_ns)
        return done


def damage(failures: Sequence[str], pieces: int) -> str | None:
    """How an object is damaged, from the way its pieces fail: one that is right elsewhere is torn."""
    kinds = set(failures)
    if not kinds:
        return None
    whole = len(failures) == pieces
    return kinds.pop() if len(kinds) == 1 and (whole or "corrupt" in kinds) else "torn"


def errno_name(number: int) -> str:
    return errno.errorcode.get(number, f"errno_{number}")


class SpanJob(Job):
    """A job whose pieces are those of a span."""

    __slots__ = ("failures", "span", "sync_ns")

    def __init__(self, span: Span):
        super().__init__()
        self.span = span
        self.sync_ns = 0
        self.failures: list[str] = []

    def helpers(self) -> int:
        return max(0, min(LANES_PER_ENTRY, self.span.piece_count) - 1)

    def stop(self) -> None:
        super().stop()
        self.span.stop()

    def fail(self, error: str, detail: str = "") -> None:
        super().fail(error, detail)
        self.span.stop()

    def in_flight_ns(self) -> list[int] | None:
        return self.span.in_flight_ns()

    def check(self, memory: Bytes, piece: int, verify: Verify, base: Bytes) -> None:
        """Note how the piece in memory fails, if it does. The rest is read nevertheless: only that tells a
        torn object, which is right elsewhere, from a wrong one."""
        wrong = check_piece(memory, self.span, piece, verify, base)
        if wrong is not None:
            self.failures.append(wrong)

    def mismatch(self, memory: Bytes, piece: int, verify: Verify, base: Bytes) -> None:
        """The same for a piece that was found to fail already."""
        self.failures.append(check_piece(memory, self.span, piece, verify, base) or "corrupt")

    def complete(self, finished_ns: int) -> Completion:
        verdict = damage(self.failures, self.span.piece_count)
        if verdict is not None:
            self.fail(verdict, f"{len(self.failures)} of {self.span.piece_count} pieces failed verification")
        pieces = done_pieces(self.span.log)
        device_ns = pieces.union_ns() + self.sync_ns
        return Completion(
            self.submitted_ns,
            self.started_ns,
            finished_ns,
            device_ns,
            pieces,
            self.error,
            self.detail,
            self.sync_ns,
        )
