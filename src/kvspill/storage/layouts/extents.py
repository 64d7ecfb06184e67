"""Objects as parts of larger files: the jobs and the bookkeeping that slots and buckets share."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.records import Completion
from kvspill.storage import fastio
from kvspill.storage.base import ObjectRef, Source, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import preallocate
from kvspill.storage.fastio import Span
from kvspill.storage.filejobs import Site
from kvspill.storage.files import FilesOptions
from kvspill.storage.jobs import Job, SpanJob, Worker, errno_name
from kvspill.storage.layouts import Layout
from kvspill.storage.layouts.split import SplitFilesBackend
from kvspill.storage.stamps import BLOCK_BYTES, Identity, identify, stamp


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an object lies: parts of equal length in one file, in the order of its bytes."""

    site: Site
    file: str
    offsets: tuple[int, ...]
    part_bytes: int
    fd: int = -1
    """The file's descriptor where it stays open; else each job opens the file."""

    def offset(self, at: int) -> int:
        """Where byte `at` of the object is in the file."""
        return self.offsets[at // self.part_bytes] + at % self.part_bytes


def piece_bytes_of(part_bytes: int, io_size: int) -> int:
    """The largest piece of whole blocks that fits a system call and cuts a part into equal ones."""
    pieces = -(-part_bytes // io_size)
    return -(-part_bytes // pieces // BLOCK_BYTES) * BLOCK_BYTES


class MissingJob(Job):
    """Answers for an object that is not there."""

    def begin(self) -> int:
        raise FileNotFoundError(2, "no such object")


class FullJob(Job):
    """Answers for an object that there is no room for."""

    def begin(self) -> int:
        raise OSError(28, "no free slot")


class _ExtentJob(SpanJob):
    __slots__ = ("extent", "fd")

    def __init__(self, extent: Extent, identity: Identity, nbytes: int, total_bytes: int, piece_bytes: int):
        super().__init__(Span(identity, nbytes, total_bytes, piece_bytes))
        self.extent = extent
        self.fd = -1

    def open_fd(self, flags: int) -> None:
        shared = self.extent.fd
        self.fd = shared if shared >= 0 else self.extent.site.open(self.extent.file, flags)

    def close_fd(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0 and self.extent.fd < 0:
            os.close(fd)

    def fail_short(self, kind: str, moved: int, wanted: int) -> None:
        self.fail(kind, f"{moved} of {wanted} bytes in {self.extent.file}")

    def drop_pages(self) -> None:
        """Make the next read come from the device (E7)."""
        for offset in self.extent.offsets:
            os.posix_fadvise(self.fd, offset, self.extent.part_bytes, os.POSIX_FADV_DONTNEED)


class ReadExtent(_ExtentJob):
    """Reads an object's pieces and checks their stamps."""

    __slots__ = ()

    def begin(self) -> int:
        self.open_fd(os.O_RDONLY)
        return self.helpers()

    def move(self, worker: Worker) -> None:
        site, span = self.extent.site, self.span
        memory = worker.memory(span.piece_bytes)
        while (piece := span.take()) is not None:
            offset, nbytes = span.extent(piece)
            start_ns = span.begin(piece)
            moved = os.preadv(self.fd, [memory[:nbytes].data], self.extent.offset(offset))
            end_ns = time.monotonic_ns()
            if moved < nbytes:
                return self.fail_short("short_read", moved, nbytes)
            span.note(piece, start_ns, end_ns, nbytes)
            if fastio.check_piece(memory, span, piece, site.verify, site.plane.base) is not None:
                self.mismatch(memory, piece, site.verify, site.plane.base)
        return None

    def end(self) -> None:
        try:
            if self.fd >= 0 and self.extent.site.access.drop_cache:
                self.drop_pages()
        finally:
            self.close_fd()


class WriteExtent(_ExtentJob):
    """Writes an object into room that is its own."""

    __slots__ = ("reserve_bytes", "source")

    def __init__(
        self,
        extent: Extent,
        identity: Identity,
        nbytes: int,
        total_bytes: int,
        piece_bytes: int,
        source: Source | None,
        reserve_bytes: int = 0,
    ):
        super().__init__(extent, identity, nbytes, total_bytes, piece_bytes)
        self.source = source
        self.reserve_bytes = reserve_bytes
        """Room that the file needs as a whole, where this is its first object."""

    def begin(self) -> int:
        site = self.extent.site
        self.open_fd(os.O_RDWR | os.O_CREAT)
        if self.reserve_bytes and site.access.preallocates:
            preallocate(self.fd, self.reserve_bytes)
        # Buffered writes hold the inode's lock: more lanes on one file would only spin on it.
        return self.helpers() if site.access.direct else 0

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - writes use leased base data
        span, plane = self.span, self.extent.site.plane
        while (piece := span.take()) is not None:
            offset, nbytes = span.extent(piece)
            span.begin(piece)
            there = self.extent.offset(offset)
            if self.source is not None:
                answer = fastio.pwritev_timed(self.fd, self.source.buffers(offset, nbytes), there)
            else:
                with plane.lease(-(-nbytes // BLOCK_BYTES) * BLOCK_BYTES) as memory:
                    stamp(memory, span.identity, offset, nbytes)
                    answer = fastio.pwritev_timed(self.fd, [memory[:nbytes]], there)
            moved, start_ns, end_ns = answer
            if moved < 0:
                return self.fail(errno_name(-moved), f"writing {self.extent.file}")
            if moved < nbytes:
                return self.fail_short("short_write", moved, nbytes)
            span.note(piece, start_ns, end_ns, nbytes)
        return None

    def end(self) -> None:
        self.source = None
        if self.fd < 0:
            return
        access = self.extent.site.access
        try:
            if self.error is None and (self.extent.site.sync or access.drop_cache):
                start_ns = time.monotonic_ns()
                os.fdatasync(self.fd)
                self.extra_device_ns = time.monotonic_ns() - start_ns
            if access.drop_cache:
                self.drop_pages()
        finally:
            self.close_fd()


class ExtentsBackend(SplitFilesBackend, ABC):
    """Keeps the map from objects to extents on the event loop; subclasses hand out and take back room."""

    def __init__(
        self,
        roots: Sequence[Path],
        options: FilesOptions,
        layout: Layout,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
    ):
        super().__init__(roots, options, layout, clock_ns, plane)
        self._extents: dict[tuple[str, int], Extent] = {}

    @abstractmethod
    def _allocate(self, site: Site, nbytes: int) -> tuple[Extent, int] | None:
        """Room for an object, and what its file must reserve first; None where there is none."""

    @abstractmethod
    def _freeing(self, extent: Extent) -> Job:
        """The work that gives an object's room back."""

    @abstractmethod
    def _freed(self, extent: Extent) -> None:
        """That work was done."""

    def _piece_bytes(self, extent: Extent) -> int:
        return piece_bytes_of(extent.part_bytes, self._options.io_size)

    def _padded(self, nbytes: int) -> int:
        return -(-nbytes // self._alignment) * self._alignment

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._lanes.submit([self._reading(ref) for ref in batch])

    def _reading(self, ref: ObjectRef) -> Job:
        extent = self._extents.get((ref.key, ref.generation))
        if extent is None:
            return MissingJob()
        identity = identify(ref.key, ref.generation, self._plane.salt)
        return ReadExtent(extent, identity, ref.nbytes, self._padded(ref.nbytes), self._piece_bytes(extent))

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        extents: list[Extent | None] = []
        jobs: list[Job] = []
        for item in batch:
            site, identity, _, _ = self._place(item.ref)
            room = self._allocate(site, item.ref.nbytes)
            extents.append(None if room is None else room[0])
            if room is None:
                jobs.append(FullJob())
                continue
            extent, reserve_bytes = room
            jobs.append(
                WriteExtent(
                    extent,
                    identity,
                    item.ref.nbytes,
                    self._padded(item.ref.nbytes),
                    self._piece_bytes(extent),
                    item.source,
                    reserve_bytes,
                )
            )
        completions = await self._stores.submit(jobs)
        await self._give_back(self._settle(batch, extents, completions))
        return completions

    def _settle(
        self, batch: Sequence[WriteItem], extents: list[Extent | None], completions: list[Completion]
    ) -> list[Extent]:
        """Note what was written; returns the room of what failed or was written over."""
        unwanted: list[Extent] = []
        for item, extent, completion in zip(batch, extents, completions, strict=True):
            if extent is None:
                continue
            if completion.error is not None:
                unwanted.append(extent)
                continue
            name = (item.ref.key, item.ref.generation)
            if name in self._extents:
                unwanted.append(self._extents[name])
            self._extents[name] = extent
        return unwanted

    async def _give_back(self, extents: list[Extent]) -> None:
        if extents:
            completions = await self._unlinks.submit([self._freeing(extent) for extent in extents])
            for extent, completion in zip(extents, completions, strict=True):
                if completion.error is None:
                    self._freed(extent)

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        extents = [self._extents.get((ref.key, ref.generation)) for ref in batch]
        jobs = [MissingJob() if extent is None else self._freeing(extent) for extent in extents]
        completions = await self._unlinks.submit(jobs)
        for ref, extent, completion in zip(batch, extents, completions, strict=True):
            if extent is not None and completion.error is None:
                del self._extents[ref.key, ref.generation]
                self._freed(extent)
        return completions
