"""The dram backend: objects in pages of one arena; a read is a copy out, a write a copy in."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from kvspill.errors import UsageError
from kvspill.machine.processors import memory_nodes, usable_processors
from kvspill.records import NS_PER_SEC, Completion
from kvspill.storage import fastio
from kvspill.storage.arena import PAGE_BYTES, Arena, Pages, padded
from kvspill.storage.base import Backend, Capabilities, ObjectRef, Progress, Source, WriteItem, forgotten
from kvspill.storage.buffers import DataPlane
from kvspill.storage.copies import CopyJob, CopyLanes
from kvspill.storage.fastio import Span, Status
from kvspill.storage.jobs import Worker
from kvspill.storage.lanes import on_thread, on_thread_or_here, post
from kvspill.storage.stamps import Bytes, Verify, block_padded, identify
from kvspill.storage.threaded import FILL_AHEAD_NS, JOIN_NS
from kvspill.texts import size_text

PAGES_PER_LANE = 4
"""A lane joins an object only for at least so many of the largest pages: waking a thread takes as long as
copying a few."""


class DramBackend(Backend):
    """An arena of the usable bytes, touched before the load begins."""

    def __init__(
        self,
        usable_bytes: int,
        verify: str = "stamp",
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
        threads: int | None = None,
        nodes: Sequence[frozenset[int]] | None = None,
        page_bytes: int = PAGE_BYTES,
    ):
        if usable_bytes < page_bytes:
            raise UsageError(
                f"--cpu-mem-gb: {usable_bytes} usable bytes hold no {page_bytes}-byte page; give more or 0"
            )
        self.page_bytes = page_bytes
        self.arena = Arena(usable_bytes // page_bytes, page_bytes)
        self.verify = Verify[verify.upper()]
        self.threads = threads or usable_processors()
        self.plane = plane or DataPlane(PAGE_BYTES, self.threads)
        self._clock_ns = clock_ns
        self._nodes = nodes or memory_nodes()
        self._lanes = CopyLanes("kvspill-dram", self.threads, clock_ns, self.arena, self.plane)
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, int], Pages] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="dram",
            modelled=False,
            verifies=self.verify is not Verify.OFF,
            description=f"{size_text(self._usable_bytes)} in pages of {size_text(self.page_bytes)}",
        )

    @property
    def _usable_bytes(self) -> int:
        return self.arena.page_count * self.page_bytes

    def stored_bytes(self, nbytes: int) -> int:
        return padded(nbytes, self.page_bytes)

    async def prepare(self, progress: Progress) -> None:
        """Touch the arena: the first touch of memory can be 20 times slower than its use."""
        loop = asyncio.get_running_loop()
        total, what = self._usable_bytes, f"DRAM ({size_text(self._usable_bytes)})"

        def report(reached: int) -> None:
            post(loop, lambda: progress(what, reached, total))

        self._lanes.start()

        def touch(number: int) -> None:
            self._move_to_node(number)
            self.arena.touch(report)

        def fill() -> None:
            self._move_to_node(0)
            self.plane.fill_some(lambda: not self._lanes.stopping and self._clock_ns() < fill_until_ns)

        count = max(self.threads, len(self._nodes))
        touches = (on_thread("kvspill-touch", partial(touch, number)) for number in range(count))
        fill_until_ns = self._clock_ns() + FILL_AHEAD_NS
        await asyncio.gather(on_thread("kvspill-fill", fill), *touches)

    def _move_to_node(self, number: int) -> None:
        """Memory lies near the thread that touches it first: over several nodes their speeds add up."""
        node = self._nodes[number % len(self._nodes)]
        if node != os.sched_getaffinity(0):
            os.sched_setaffinity(0, node)

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._lanes.carry([_ReadJob(self, ref) for ref in batch])

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        return await self._lanes.carry([_WriteJob(self, item) for item in batch])

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return forgotten(batch, self.forget, self._clock_ns)

    def lend(self, ref: ObjectRef) -> Source | None:
        pages = self.find(ref)
        return None if pages is None else self.arena.source(pages)

    def host_memory(self) -> Sequence[Bytes]:
        return (self.arena.memory,)

    def find(self, ref: ObjectRef) -> Pages | None:
        with self._lock:
            return self._objects.get((ref.key, ref.generation))

    def keep(self, ref: ObjectRef, pages: Pages) -> None:
        """Make an object readable; what it replaces gives its pages back."""
        with self._lock:
            replaced = self._objects.pop((ref.key, ref.generation), None)
            self._objects[ref.key, ref.generation] = pages
        if replaced is not None:
            self.arena.give_back(replaced)

    def forget(self, ref: ObjectRef) -> bool:
        with self._lock:
            pages = self._objects.pop((ref.key, ref.generation), None)
        if pages is None:
            return False
        self.arena.give_back(pages)
        return True

    def cancel(self) -> None:
        """Stop what is queued and under way: it completes with the error "cancelled"."""
        self._lanes.cancel()

    def stuck(self, now_ns: int, older_than_ns: int = NS_PER_SEC) -> list[int]:
        """Ages of copies that threads have been at for at least older_than_ns."""
        return self._lanes.stuck(now_ns, older_than_ns)

    async def close(self) -> None:
        await on_thread_or_here("kvspill-close", self.close_now)
        self._lanes.leave_loop()

    def close_now(self) -> None:
        """End the threads and give the memory back. Safe to call twice."""
        self._lanes.join(self._clock_ns() + JOIN_NS)
        with self._lock:
            self._objects.clear()
        self.arena = Arena(0)


class _ReadJob(CopyJob):
    __slots__ = ("backend", "ref")

    def __init__(self, backend: DramBackend, ref: ObjectRef):
        super().__init__(_span(backend, ref), backend.verify)
        self.backend = backend
        self.ref = ref

    def begin(self) -> int:
        self.pages = self.backend.find(self.ref)
        if self.pages is None:
            self.fail("ENOENT", f"no object {self.ref.key} in the arena")
        elif len(self.pages) * self.backend.page_bytes < self.span.total_bytes:
            held_bytes = len(self.pages) * self.backend.page_bytes
            self.fail("short_read", f"{self.ref.key} has {held_bytes} of {self.span.total_bytes} bytes")
        return self.helpers()

    def helpers(self) -> int:
        return _helpers(self.backend, self.span)

    def move(self, worker: Worker) -> None:
        backend, span = self.backend, self.span
        memory = worker.memory(PAGE_BYTES)
        base = backend.plane.base
        assert self.pages is not None
        there = backend.arena.source(self.pages)
        status = int(Status.MISMATCH)
        while status == Status.MISMATCH:
            status, piece, _ = fastio.exchange(False, memory, there, span, backend.verify, base)
            if status == Status.MISMATCH:
                self.mismatch(memory, piece, backend.verify, base)


class _WriteJob(CopyJob):
    __slots__ = ("backend", "ref", "source")

    def __init__(self, backend: DramBackend, item: WriteItem):
        super().__init__(_span(backend, item.ref), Verify.OFF)
        self.backend = backend
        self.ref = item.ref
        self.source = item.source

    def by_python(self) -> bool:
        return self.source is not None or not self.backend.plane.filled

    def sample(self) -> slice:
        plane = self.backend.plane
        nbytes = min(self.span.piece_count * PAGE_BYTES, len(plane.base))
        start = plane.sample_start(nbytes)
        return slice(start, start + nbytes)

    def begin(self) -> int:
        arena = self.backend.arena
        count = padded(self.span.total_bytes, arena.page_bytes) // arena.page_bytes
        self.pages = arena.take(count)
        if self.pages is None:
            self.fail("ENOMEM", f"{self.ref.key} needs {count} pages, {arena.free_pages} are free")
        return self.helpers()

    def helpers(self) -> int:
        lanes = _helpers(self.backend, self.span)
        return lanes if self.source is None else lanes // self.source.pieces_at_once

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - writes land in the arena
        if self.source is not None:
            self._copy_lent(self.source)
            return
        backend, pages = self.backend, self.pages
        assert pages is not None
        sample, there = backend.plane.base[self.sample()], backend.arena.source(pages)
        fastio.exchange(True, sample, there, self.span, Verify.OFF, fastio.NOTHING)

    def _copy_lent(self, source: Source) -> None:
        assert self.pages is not None
        span, there = self.span, self.backend.arena.source(self.pages)
        while pieces := span.take_some(source.pieces_at_once):
            extents = [span.extent(piece) for piece in pieces]
            start_ns = min([span.begin(piece) for piece in pieces])
            offset, nbytes = extents[0][0], sum(length for _, length in extents)
            source.copy(offset, there.buffers(offset, nbytes))
            end_ns = time.monotonic_ns()
            for piece, (_, length) in zip(pieces, extents, strict=True):
                span.note(piece, start_ns, end_ns, length)

    def end(self) -> None:
        self.source = None
        if self.pages is None:
            return
        if self.error is None:
            self.backend.keep(self.ref, self.pages)
        else:
            self.backend.arena.give_back(self.pages)


def _helpers(backend: DramBackend, span: Span) -> int:
    """All threads may help with a large object: memory is only as fast as many of them together."""
    return max(0, min(backend.threads, span.total_bytes // (PAGES_PER_LANE * PAGE_BYTES)) - 1)


def _span(backend: DramBackend, ref: ObjectRef) -> Span:
    identity = identify(ref.key, ref.generation, backend.plane.salt)
    # Whole blocks are filled and stamped, so that the object can be lent to a tier that pads it.
    return Span(identity, ref.nbytes, block_padded(ref.nbytes), PAGE_BYTES)
