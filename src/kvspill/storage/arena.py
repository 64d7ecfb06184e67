"""Memory of fixed size in 2 MiB pages: who has which page, and an object's own pages lent for a write."""

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kvspill.storage.buffers import HUGE_PAGE_BYTES, map_memory
from kvspill.storage.stamps import BLOCK_BYTES, Bytes

PAGE_BYTES = HUGE_PAGE_BYTES
_TOUCH_BYTES = 16 * PAGE_BYTES

Pages = npt.NDArray[np.int64]


def pages_of(nbytes: int) -> int:
    return -(-nbytes // PAGE_BYTES)


class Arena:
    """Pages are taken and given back by threads, hence the lock; their bytes need none."""

    def __init__(self, page_count: int):
        self.page_count = page_count
        self.memory: Bytes = map_memory(page_count * PAGE_BYTES)
        self._lock = threading.Lock()
        self._free = list(range(page_count - 1, -1, -1))
        self._untouched = iter(range(0, page_count * PAGE_BYTES, _TOUCH_BYTES))
        self._touched_bytes = 0

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def take(self, count: int) -> Pages | None:
        """Pages for an object, or None where there are not enough."""
        with self._lock:
            left = len(self._free) - count
            if left < 0:
                return None
            taken = self._free[left:]
            del self._free[left:]
        return np.array(taken, dtype=np.int64)

    def give_back(self, pages: Pages) -> None:
        with self._lock:
            self._free.extend(pages.tolist())
            assert len(self._free) <= self.page_count, "a page was given back twice"

    def touch(self, progress: Callable[[int], None]) -> None:
        """Touch memory until all is touched; any number of threads may share the work."""
        while True:
            with self._lock:
                start = next(self._untouched, None)
            if start is None:
                return
            part = self.memory[start : start + _TOUCH_BYTES]
            part[::BLOCK_BYTES] = 0
            with self._lock:
                self._touched_bytes += len(part)
                reached = self._touched_bytes
            progress(reached)


class PagedSource:
    """An object's own pages (E5). A borrower may also ask for the padding up to the end of the last page."""

    __slots__ = ("_memory", "_pages")

    def __init__(self, memory: Bytes, pages: Pages):
        self._memory = memory
        self._pages = pages

    def buffers(self, offset: int, nbytes: int) -> Sequence[Bytes]:
        parts = []
        while nbytes > 0:
            page, within = divmod(offset, PAGE_BYTES)
            length = min(nbytes, PAGE_BYTES - within)
            start = int(self._pages[page]) * PAGE_BYTES + within
            parts.append(self._memory[start : start + length])
            offset, nbytes = offset + length, nbytes - length
        return parts
