"""The parts of one upload: made in leased memory as the client asks for them, given back as it lets go."""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from kvspill.storage.buffers import DataPlane
from kvspill.storage.objects.stores import PART_BYTES_MIN
from kvspill.storage.stamps import Bytes, stamp

if TYPE_CHECKING:
    from kvspill.storage.objects.jobs import WriteJob

_LET_GO_SECONDS = 2.0
_LOOK_SECONDS = 0.25


class StoppedError(OSError):
    """The job was stopped between two parts: the client gives the upload up."""


class PartMemory:
    """Memory of the data plane for the parts of all uploads; a part gets all of it at once, or waits (C4)."""

    def __init__(self, plane: DataPlane):
        self.plane = plane
        self.pieces_per_part = -(-PART_BYTES_MIN // plane.io_size)
        self.part_bytes = self.pieces_per_part * plane.io_size
        self.parts_max = max(1, plane.leases_max // self.pieces_per_part)
        self._room = threading.Semaphore(self.parts_max)

    def take(self, seconds: float) -> bool:
        """Reserve the memory of one part; False where there was none for so long."""
        return self._room.acquire(timeout=seconds)

    def give_back(self) -> None:
        self._room.release()


class Parts:
    """Hands out the pieces of an object, of no more parts at a time than lanes have joined.

    A part's request is done when the client lets go of its memory: nobody else holds it by then.
    """

    def __init__(self, job: "WriteJob", memory: PartMemory, clock_ns: Callable[[], int]):
        self._job = job
        self._memory = memory
        self._clock_ns = clock_ns
        pieces = job.span.piece_count
        self._per_part = min(pieces, memory.pieces_per_part)
        self.count = -(-pieces // self._per_part)
        """Parts in all; one is a plain put."""
        self._lanes = 0
        self._held: dict[int, list[int]] = {}
        """Parts in flight, each with those of its pieces that the client still holds."""
        # Filled on threads of the client, while they let memory go: only this kind of queue allows that.
        self._news: SimpleQueue[None] = SimpleQueue()

    def join(self) -> int:
        """Another lane lends itself to the upload; returns how many there are."""
        with self._job.lock:
            self._lanes += 1
            lanes = self._lanes
        self._news.put(None)
        return lanes

    def put_whole(self, store: Any) -> None:
        """One request for all of it."""
        import obstore

        with self._attempt():
            obstore.put(store, self._job.path, self._hand_out(), use_multipart=False)

    def put_in_parts(self, store: Any) -> None:
        """A multipart upload. The client takes the next part when it may; where that fails it drops all."""
        import obstore

        with self._attempt():
            obstore.put(
                store,
                self._job.path,
                self._hand_out(),
                use_multipart=True,
                chunk_size=self._per_part * self._job.span.piece_bytes,
                # We decide how many there are, by handing out no more.
                max_concurrency=self.count,
            )

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        log = self._job.span.log
        log[1:] = 0
        try:
            yield
        except BaseException:
            self._settle()
            # What a failed attempt has moved is not known, and so not claimed.
            log[1:] = 0
            raise
        self._settle()

    def _hand_out(self) -> Iterator[Bytes]:
        span = self._job.span
        for part in range(self.count):
            self._wait(lambda: len(self._held) < self._lanes)
            self._wait(lambda: self._memory.take(_LOOK_SECONDS))
            first = part * self._per_part
            pieces = range(first, min(first + self._per_part, span.piece_count))
            self._held[part] = list(pieces)
            for piece in pieces:
                buffers = self._make(part, piece)
                while buffers:
                    # Nothing here may hold on to what is handed out: its end is how the client says done.
                    yield buffers.pop(0)

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Until it is so; raises StoppedError where the job was stopped meanwhile."""
        while self._job.error is None and not ready():
            with suppress(Empty):
                self._news.get(timeout=_LOOK_SECONDS)
        if self._job.error is not None:
            raise StoppedError("the run is over")

    def _make(self, part: int, piece: int) -> list[Bytes]:
        """Memory with one piece of the object; its time begins."""
        span, source = self._job.span, self._job.source
        offset, nbytes = span.extent(piece)
        lease = ExitStack()
        if source is not None:
            buffers = [np.frombuffer(lent, dtype=np.uint8) for lent in source.buffers(offset, nbytes)]
        else:
            memory = lease.enter_context(self._memory.plane.lease(nbytes))
            stamp(memory, span.identity, offset, nbytes)
            buffers = [memory[:]]
        start_ns = span.begin(piece)
        weakref.finalize(buffers[-1], self._let_go, part, piece, start_ns, lease).atexit = False
        return buffers

    def _let_go(self, part: int, piece: int, start_ns: int, lease: ExitStack) -> None:
        """The client holds a piece no more."""
        end_ns = self._clock_ns()
        lease.close()
        self._job.span.note(piece, start_ns, max(start_ns, end_ns), self._job.span.extent(piece)[1])
        pieces = self._held[part]
        pieces.remove(piece)
        if not pieces and self._held.pop(part, None) is not None:
            self._memory.give_back()
        self._news.put(None)

    def _settle(self) -> None:
        """Wait for the client to let go of what it still holds."""
        while self._held:
            try:
                self._news.get(timeout=_LET_GO_SECONDS)
            except Empty:
                break
