"""Memory of fixed size in 2 MiB pages: who has which page, and an object's own pages lent for a write."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kvspill.storage.buffers import HUGE_PAGE_BYTES, map_memory
from kvspill.storage.stamps import BLOCK_BYTES, Bytes

PAGE_BYTES = HUGE_PAGE_BYTES
_TOUCH_BYTES = 16 * PAGE_BYTES

Pages = npt.NDArray[np.int64]
_LOOKED_AT = 64
"""Free runs that are tried for an object: beyond that it is cheaper to cut it up than to go on looking."""


def pages_of(nbytes: int) -> int:
    return -(-nbytes // PAGE_BYTES)


class PagePool:
    """Who has which page. Pages are taken and given back by threads, hence the lock.

    What is free is kept as runs of neighbouring pages, since what lies together is copied in one go.
    """

    def __init__(self, page_count: int):
        self.page_count = page_count
        self.free_pages = page_count
        self._lock = threading.Lock()
        self._starts = [0] if page_count else []
        """First page of each free run, in order."""
        self._ends = {0: page_count} if page_count else {}

    def take(self, count: int) -> Pages | None:
        """Pages for an object, together where that is possible, or None where there are not enough."""
        with self._lock:
            if count > self.free_pages:
                return None
            self.free_pages -= count
            for place, start in enumerate(self._starts[:_LOOKED_AT]):
                if self._ends[start] - start >= count:
                    self._shorten(place, count)
                    return np.arange(start, start + count, dtype=np.int64)
            parts = []
            while count:
                start = self._starts[0]
                length = min(count, self._ends[start] - start)
                self._shorten(0, length)
                parts.append(np.arange(start, start + length, dtype=np.int64))
                count -= length
        return np.concatenate(parts)

    def _shorten(self, place: int, count: int) -> None:
        start = self._starts[place]
        end = self._ends.pop(start)
        if start + count < end:
            self._starts[place] = start + count
            self._ends[start + count] = end
        else:
            del self._starts[place]

    def give_back(self, pages: Pages) -> None:
        with self._lock:
            for first, last in runs_of(pages):
                self._join(first, last + 1)
            self.free_pages += len(pages)
            assert self.free_pages <= self.page_count, "a page was given back twice"

    def _join(self, start: int, end: int) -> None:
        """Add a free run, as one with its neighbours."""
        place = bisect_left(self._starts, start)
        if place < len(self._starts) and self._starts[place] == end:
            end = self._ends.pop(end)
            del self._starts[place]
        if place and self._ends[self._starts[place - 1]] == start:
            self._ends[self._starts[place - 1]] = end
        else:
            self._starts.insert(place, start)
            self._ends[start] = end


def runs_of(pages: Pages) -> list[tuple[int, int]]:
    """First and last page of each run of neighbours, in order."""
    if len(pages) <= 1:
        return [(page, page) for page in pages.tolist()]
    breaks = np.flatnonzero(np.diff(pages) != 1)
    firsts, lasts = pages[np.append(0, breaks + 1)], pages[np.append(breaks, len(pages) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


class Arena(PagePool):
    """Pages of this process's memory."""

    def __init__(self, page_count: int):
        super().__init__(page_count)
        self.memory: Bytes = map_memory(page_count * PAGE_BYTES)
        self._untouched = iter(range(0, page_count * PAGE_BYTES, _TOUCH_BYTES))
        self._touched_bytes = 0

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
    pieces_at_once = 1

    def __init__(self, memory: Bytes, pages: Pages):
        self._memory = memory
        self._pages = pages

    def buffers(self, offset: int, nbytes: int) -> Sequence[Bytes]:
        """Neighbouring pages are one buffer."""
        first, last = offset // PAGE_BYTES, (offset + nbytes - 1) // PAGE_BYTES
        skipped, parts = offset - first * PAGE_BYTES, []
        for start, end in runs_of(self._pages[first : last + 1]):
            length = min(nbytes, (end + 1 - start) * PAGE_BYTES - skipped)
            begin = start * PAGE_BYTES + skipped
            parts.append(self._memory[begin : begin + length])
            nbytes, skipped = nbytes - length, 0
        return parts

    def copy(self, offset: int, targets: Sequence[Bytes]) -> None:
        for target in targets:
            at = 0
            for part in self.buffers(offset, len(target)):
                np.copyto(target[at : at + len(part)], part)
                at += len(part)
            offset += at
