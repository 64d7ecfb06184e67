"""What threads do for one object in a file: read it, write it under a temporary name, or remove it."""

import fcntl
import os
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from kvspill.records import Completion
from kvspill.storage import fastio
from kvspill.storage.base import Source
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import Access, preallocate, resident_pages
from kvspill.storage.fastio import Span, Status
from kvspill.storage.jobs import Job, SpanJob, Worker, errno_name
from kvspill.storage.rundir import RunDir
from kvspill.storage.stamps import BLOCK_BYTES, Identity, Verify

_BURST_BYTES = 64 << 20
"""A lane writes this much from one leased buffer before it takes the next: large entries are made of several
parts of the base, but each change needs the interpreter, and too many make the queue uneven."""


@dataclass(slots=True)
class Tally:
    """What was really done to files, counted by the threads that did it."""

    opened_direct: int = 0
    opened_buffered: int = 0
    pages_dropped: int = 0
    pages_left: int = 0
    """Pages still in the page cache after they were synced and dropped, as mincore sees it (E7)."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def opened(self, fd: int) -> None:
        direct = bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)
        with self._lock:
            self.opened_direct += direct
            self.opened_buffered += not direct

    def dropped(self, pages: int, left: int) -> None:
        with self._lock:
            self.pages_dropped += pages - left
            self.pages_left += left


@dataclass(frozen=True, slots=True)
class Site:
    """One root's run directory and how files in it are treated."""

    run: RunDir
    access: Access
    sync: bool
    verify: Verify
    plane: DataPlane
    tally: Tally
    levels: tuple[int, ...] = (2,)
    """Letters of a file's name that each directory on the way to it is named by."""

    def open(self, name: str, flags: int) -> int:
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_DIRECT if self.access.direct else 0)
        fd = os.open(name, flags, 0o600, dir_fd=self.run.fd)
        self.tally.opened(fd)
        return fd


class _FileJob(SpanJob):
    __slots__ = ("fd", "site")

    def __init__(self, site: Site, identity: Identity, nbytes: int, total_bytes: int):
        super().__init__(Span(identity, nbytes, total_bytes, site.plane.io_size))
        self.site = site
        self.fd = -1

    @property
    def path(self) -> str:
        return path_of(self.span.identity, self.site.levels)

    def fail_short(self, kind: str, piece: int, moved: int) -> None:
        offset, nbytes = self.span.extent(piece)
        self.fail(kind, f"{moved} of {nbytes} bytes at {offset} of {self.path}")

    def close_fd(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def drop_pages(self) -> None:
        """Make the next read come from the device, and look whether it will (E7)."""
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        nbytes = self.span.total_bytes
        self.site.tally.dropped(-(-nbytes // BLOCK_BYTES), resident_pages(self.fd, nbytes))


class ReadJob(_FileJob):
    __slots__ = ()

    def begin(self) -> int:
        self.fd = self.site.open(self.path, os.O_RDONLY)
        return self.helpers()

    def move(self, worker: Worker) -> None:
        span, site = self.span, self.site
        memory = worker.memory(span.piece_bytes)
        while True:
            status, piece, value = fastio.transfer(self.fd, False, memory, span, site.verify, site.plane.base)
            if status == Status.MISMATCH:
                self.mismatch(memory, piece, site.verify, site.plane.base)
            elif status == Status.FAILED:
                return self.fail(errno_name(value), f"reading {self.path}")
            elif status == Status.SHORT:
                return self.fail_short("short_read", piece, value)
            else:
                return None

    def end(self) -> None:
        try:
            if self.fd >= 0 and self.site.access.drop_cache:
                self.drop_pages()
        finally:
            self.close_fd()


class WriteJob(_FileJob):
    __slots__ = ("source",)

    def __init__(self, site: Site, identity: Identity, nbytes: int, total_bytes: int, source: Source | None):
        super().__init__(site, identity, nbytes, total_bytes)
        self.source = source

    @property
    def temporary(self) -> str:
        return self.path + ".tmp"

    def begin(self) -> int:
        self.site.run.make_subdir(self.path.rpartition("/")[0])
        self.fd = self.site.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if self.span.total_bytes and self.site.access.preallocates:
            preallocate(self.fd, self.span.total_bytes)
        # Buffered writes hold the inode's lock: more lanes on one file would only spin on it.
        return self.helpers() if self.site.access.direct else 0

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - writes use leased base data
        if self.source is not None:
            self._move_lent(self.source)
        else:
            self._move_made()

    def _move_made(self) -> None:
        span, plane = self.span, self.site.plane
        burst = max(1, _BURST_BYTES // span.piece_bytes)
        nbytes = min(span.piece_bytes, -(-span.total_bytes // BLOCK_BYTES) * BLOCK_BYTES)
        status = int(Status.MORE)
        while status == Status.MORE:
            with plane.lease(nbytes) as memory:
                status, piece, value = fastio.transfer(
                    self.fd, True, memory, span, Verify.OFF, fastio.NOTHING, burst
                )
        if status == Status.FAILED:
            self.fail(errno_name(value), f"writing {self.path}")
        elif status == Status.SHORT:
            self.fail_short("short_write", piece, value)

    def _move_lent(self, source: Source) -> None:
        while (piece := self.span.take()) is not None:
            offset, nbytes = self.span.extent(piece)
            self.span.begin(piece)
            moved, start_ns, end_ns = fastio.pwritev_timed(self.fd, source.buffers(offset, nbytes), offset)
            if 0 < moved < nbytes:
                rest, _, end_ns = fastio.pwritev_timed(
                    self.fd, source.buffers(offset + moved, nbytes - moved), offset + moved
                )
                moved = rest if rest < 0 else moved + rest
            if moved < 0:
                return self.fail(errno_name(-moved), f"writing {self.path}")
            if moved < nbytes:
                return self.fail_short("short_write", piece, moved)
            self.span.note(piece, start_ns, end_ns, nbytes)
        return None

    def end(self) -> None:
        self.source = None
        if self.fd < 0:
            return
        run_fd = self.site.run.fd
        try:
            if self.error is None:
                self._make_durable()
                os.rename(self.temporary, self.path, src_dir_fd=run_fd, dst_dir_fd=run_fd)
        except OSError as error:
            self.fail_os(error)
        finally:
            self.close_fd()
            if self.error is not None:
                os.unlink(self.temporary, dir_fd=run_fd)

    def _make_durable(self) -> None:
        if self.site.sync or self.site.access.drop_cache:
            start_ns = time.monotonic_ns()
            os.fdatasync(self.fd)
            self.extra_device_ns = time.monotonic_ns() - start_ns
        if self.site.access.drop_cache:
            self.drop_pages()


class RemovalJob(Job, ABC):
    """Takes something away: no bytes move, and the time inside the call is the device's."""

    __slots__ = ("device_ns",)

    def __init__(self) -> None:
        super().__init__()
        self.device_ns = 0

    @abstractmethod
    def remove(self) -> None:
        """The call itself."""

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - no bytes move
        start_ns = time.monotonic_ns()
        try:
            self.remove()
        finally:
            self.device_ns = time.monotonic_ns() - start_ns

    def complete(self, finished_ns: int) -> Completion:
        return Completion(
            self.submitted_ns,
            self.started_ns,
            finished_ns,
            self.device_ns,
            error=self.error,
            detail=self.detail,
        )


class DeleteJob(RemovalJob):
    """Unlinks an object's file."""

    __slots__ = ("identity", "site")

    def __init__(self, site: Site, identity: Identity):
        super().__init__()
        self.site = site
        self.identity = identity

    def remove(self) -> None:
        os.unlink(path_of(self.identity, self.site.levels), dir_fd=self.site.run.fd)


def path_of(identity: Identity, levels: tuple[int, ...]) -> str:
    """An object's place in the run directory: subdirectories, then name and generation (E3)."""
    letters, parts = 0, []
    for count in levels:
        parts.append(identity.name[letters : letters + count])
        letters += count
    return "/".join((*parts, f"{identity.name}-{identity.generation}"))
