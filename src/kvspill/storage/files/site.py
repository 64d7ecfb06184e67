"""One root's run directory, how files in it are opened, and what was counted there."""

import fcntl
import os
import threading
import time
from dataclasses import dataclass, field

from kvspill.storage.base import Landing
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import Access, resident_pages
from kvspill.storage.rundir import RunDir
from kvspill.storage.stamps import Verify, blocks_of

_DROP_NAPS_SECONDS = (0.0, 0.001, 0.004, 0.016)


@dataclass(slots=True)
class Tally:
    """What was really done to files, counted by the threads that did it."""

    opened_direct: int = 0
    opened_buffered: int = 0
    pages_dropped: int = 0
    pages_left: int = 0
    """Pages still in the page cache after they were synced and dropped, as mincore sees it (E7)."""
    resumed_calls: int = 0
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

    def resumed(self, calls: int) -> None:
        with self._lock:
            self.resumed_calls += calls


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A run directory and the rules for files in it."""

    run: RunDir
    access: Access
    sync: bool
    verify: Verify
    plane: DataPlane
    tally: Tally
    landing: Landing | None = None
    """Where what is read is to end, where that is not host memory."""

    def open(self, name: str, flags: int, shared: bool = False) -> int:
        """Open a file of the run; a shared one holds many objects."""
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_DIRECT if self.access.direct else 0)
        fd = os.open(name, flags, 0o600, dir_fd=self.run.fd)
        self.tally.opened(fd)
        if shared and self.access.drop_cache:
            # Reading ahead would fetch the neighbours' pages, which nobody drops again.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def drop_pages(self, fd: int, offset: int, nbytes: int) -> None:
        """Make the next read come from the device, and look whether it will (E7)."""
        left = 0
        for nap_seconds in _DROP_NAPS_SECONDS:
            # Another object's sync in the same file may hold a page for a moment; it is kept then.
            if nap_seconds:
                time.sleep(nap_seconds)
            os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_DONTNEED)
            left = resident_pages(fd, offset, nbytes)
            if left == 0:
                break
        self.tally.dropped(blocks_of(nbytes), left)
