"""What threads do for one object of a store: read it in ranges or whole, write it in parts, remove it."""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kvspill.records import Completion
from kvspill.storage.base import ObjectRef, Source
from kvspill.storage.fastio import Span, check_at, check_piece
from kvspill.storage.jobs import LANES_PER_ENTRY, RemovalJob, SpanJob, Worker
from kvspill.storage.objects.calls import DELETE, GET, PUT
from kvspill.storage.objects.failures import RequestError
from kvspill.storage.objects.parts import Parts
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, Verify

if TYPE_CHECKING:
    from kvspill.storage.objects.backend import ObjectBackend

_CHUNK_BYTES = 512 << 10
"""Of an object that is read whole, so much comes at a time: the client holds it twice."""


class _ObjectJob(SpanJob):
    """One object's bytes on their way between memory and the store."""

    __slots__ = ("around_ns", "backend", "calls", "first_byte_ns", "path")

    def __init__(self, backend: "ObjectBackend", ref: ObjectRef):
        identity = backend.identify(ref)
        super().__init__(Span(identity, ref.nbytes, backend.stored_bytes(ref.nbytes), backend.plane.io_size))
        self.backend = backend
        run = backend.run_of(identity)
        self.calls, self.path = run.calls, run.path(identity)
        self.around_ns = 0
        """Time inside requests that moved no piece."""
        self.first_byte_ns = 0

    def guarded(self, work: Callable[[], None]) -> None:
        """Do it; a request that failed fails the job."""
        try:
            work()
        except RequestError as failed:
            self.fail(failed.failure.kind, str(failed))

    def complete(self, finished_ns: int) -> Completion:
        done = super().complete(finished_ns)
        done.device_ns = min(done.device_ns + self.around_ns, finished_ns - self.started_ns)
        done.first_byte_ns = min(self.first_byte_ns, done.device_ns)
        return done


class ReadJob(_ObjectJob):
    """Reads an object and checks it: several ranges at a time, or whole where the store has no ranges."""

    __slots__ = ()

    def begin(self) -> int:
        return self.helpers() if self.backend.ranges else 0

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - the client has its own memory
        if not self.backend.ranges:
            self.guarded(self._read_whole)
            return
        while (piece := self.span.take()) is not None:
            self.guarded(partial(self._read_range, piece))

    def _read_range(self, piece: int) -> None:
        import obstore

        offset, nbytes = self.span.extent(piece)
        clock_ns, start_ns = self.backend.clock_ns, self.span.begin(piece)

        def fetch(store: Any) -> tuple[int, Any]:
            answer = obstore.get(store, self.path, options={"range": (offset, offset + nbytes)})
            # The client holds the store to the range; a stream is copied under the interpreter's lock.
            return clock_ns(), answer.bytes()

        begun_ns, data = self.calls.ask(GET, fetch)
        end_ns = clock_ns()
        memory = np.frombuffer(data, dtype=np.uint8)
        self.calls.tally.moved(received=len(memory))
        if len(memory) != nbytes:
            self.fail("short_read", f"{len(memory)} of {nbytes} bytes at {offset} of {self.path}")
            return
        self.span.note(piece, start_ns, end_ns, nbytes)
        if piece == 0:
            self.first_byte_ns = begun_ns - start_ns
        self._verify(memory, piece)

    def _verify(self, memory: Bytes, piece: int) -> None:
        verify, base = self.backend.verify, self.backend.plane.base
        if verify is not Verify.OFF and check_piece(memory, self.span, piece, verify, base) is not None:
            self.mismatch(memory, piece, verify, base)

    def _read_whole(self) -> None:
        import obstore

        span, clock_ns = self.span, self.backend.clock_ns

        def fetch(store: Any) -> int:
            self.failures.clear()
            span.log[1:] = 0
            started_ns = span.begin(0)
            answer = obstore.get(store, self.path)
            self.first_byte_ns = clock_ns() - started_ns
            landing = _Landing(self)
            for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
                landing.take(np.frombuffer(chunk, dtype=np.uint8))
                if self.error is not None or landing.received > span.total_bytes:
                    break
            return landing.received

        received = self.calls.ask(GET, fetch)
        self.calls.tally.moved(received=received)
        if self.error is None and received != span.total_bytes:
            self.fail("short_read", f"{received} of {span.total_bytes} bytes of {self.path}")


class _Landing:
    """What comes of an object that is read whole: its blocks are checked where they are, in order."""

    def __init__(self, job: ReadJob):
        self._job = job
        self.received = 0
        self._part: Bytes = np.empty(BLOCK_BYTES, dtype=np.uint8)
        """A block of which only the beginning has come; what comes ends between blocks by chance alone."""

    def take(self, chunk: Bytes) -> None:
        """The next bytes."""
        begun = self.received % BLOCK_BYTES
        if begun:
            head = chunk[: BLOCK_BYTES - begun]
            self._part[begun : begun + len(head)] = head
            self._arrived(len(head))
            if self.received % BLOCK_BYTES == 0:
                self._check(self._part, self.received - BLOCK_BYTES)
            chunk = chunk[len(head) :]
        whole = len(chunk) // BLOCK_BYTES * BLOCK_BYTES
        offset = self.received
        self._arrived(whole)
        self._check(chunk[:whole], offset)
        rest = chunk[whole:]
        self._part[: len(rest)] = rest
        self._arrived(len(rest))

    def _arrived(self, nbytes: int) -> None:
        """Note the pieces that are whole now."""
        span, end_ns = self._job.span, self._job.backend.clock_ns()
        first = self.received // span.piece_bytes
        self.received += nbytes
        done = span.piece_count if self.received >= span.total_bytes else self.received // span.piece_bytes
        for piece in range(first, done):
            start_ns = int(span.log[piece + 1, 0]) or end_ns
            span.note(piece, start_ns, end_ns, span.extent(piece)[1])
        if first < done < span.piece_count:
            span.begin(done)

    def _check(self, blocks: Bytes, offset: int) -> None:
        job, span = self._job, self._job.span
        verify = job.backend.verify
        base = job.backend.plane.base if verify is Verify.FULL else None
        nbytes = min(len(blocks), span.total_bytes - offset)
        if verify is Verify.OFF or nbytes <= 0:
            return
        wrong = check_at(blocks, span.identity, offset, nbytes, span.checked_blocks, base)
        if wrong is not None and len(job.failures) < span.piece_count:
            job.failures.append(wrong)


class WriteJob(_ObjectJob):
    """Writes an object, made here or lent: in one request, or as an upload in parts where it is large."""

    __slots__ = ("_done", "_parts", "source")

    def __init__(self, backend: "ObjectBackend", ref: ObjectRef, source: Source | None):
        super().__init__(backend, ref)
        self.source = source
        self._parts: Parts | None = None
        self._done = threading.Event()

    def begin(self) -> int:
        self._parts = Parts(self, self.backend.memory, self.backend.clock_ns)
        return min(LANES_PER_ENTRY, self._parts.count) - 1

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - writes use leased base data
        assert self._parts is not None
        if self._parts.join() > 1:
            # Each lane that helps lets one more part be in flight; the client's own threads move it.
            self._done.wait()
            return
        try:
            self.guarded(self._upload)
        finally:
            self._done.set()

    def _upload(self) -> None:
        parts, calls, span = self._parts, self.calls, self.span
        assert parts is not None
        clock_ns = self.backend.clock_ns
        started_ns = clock_ns()
        if parts.count == 1:
            calls.ask(PUT, parts.put_whole)
        else:
            calls.ask_in_parts(parts.count, parts.put_in_parts)
        ended_ns = clock_ns()
        calls.tally.moved(sent=span.total_bytes)
        # What comes before the first part and after the last is the store's time, too.
        first_ns, last_ns = int(span.log[1:, 0].min()), int(span.log[1:, 1].max())
        self.around_ns = max(0, first_ns - started_ns) + max(0, ended_ns - last_ns)
        self.backend.keep(self.path)

    def end(self) -> None:
        self.source = None


class DeleteJob(RemovalJob):
    """Removes an entry's object from the store."""

    __slots__ = ("backend", "calls", "entry")

    def __init__(self, backend: "ObjectBackend", ref: ObjectRef):
        super().__init__()
        self.backend = backend
        identity = backend.identify(ref)
        run = backend.run_of(identity)
        self.calls, self.entry = run.calls, run.path(identity)

    def paths(self) -> str | list[str]:
        """What is removed by one request."""
        return self.entry

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - no bytes move
        import obstore

        # Stores answer alike whether there was something to remove or not.
        if not self.backend.forget(self.entry):
            self.fail("ENOENT", self.entry)
            return
        paths = self.paths()
        start_ns = self.backend.clock_ns()
        try:
            self.calls.ask(DELETE, lambda store: obstore.delete(store, paths))
        except RequestError as failed:
            self.backend.keep(self.entry)
            self.fail(failed.failure.kind, str(failed))
        self.device_ns = self.backend.clock_ns() - start_ns
