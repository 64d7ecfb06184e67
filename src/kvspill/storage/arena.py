"""Memory of fixed size in equal pages: who has which page, and an object's own pages lent for a write."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kvspill.storage.buffers import HUGE_PAGE_BYTES, map_memory
from kvspill.storage.stamps import BLOCK_BYTES, Bytes

PAGE_BYTES = HUGE_PAGE_BYTES
"""A piece of a copy: more at a time is no faster."""
SMALL_PAGE_BYTES = 64 << 10
"""Entries of any length waste half of one, and neighbours are still copied in one go."""
_TOUCH_BYTES = 16 * PAGE_BYTES
_PADDING_MAX = 0.02
_BUFFERS_MAX = 1024
"""What the system takes in one call."""

Pages = npt.NDArray[np.int64]
_LOOKED_AT = 64
"""Free runs that are tried for an object: beyond that it is cheaper to cut it up than to go on looking."""


def padded(nbytes: int, page_bytes: int) -> int:
    """What so many bytes take in whole pages."""
    return -(-nbytes // page_bytes) * page_bytes


def page_bytes_for(unit_bytes: int, io_size: int) -> int:
    """A page that is filled nearly to the end by blocks and by entries: a tier holds what it has memory for.

    A piece of io_size that is written from pages far apart must remain one call.
    """
    page_bytes, least = SMALL_PAGE_BYTES, max(BLOCK_BYTES, io_size // _BUFFERS_MAX)
    while page_bytes // 2 >= least and padded(unit_bytes, page_bytes) > (1 + _PADDING_MAX) * unit_bytes:
        page_bytes //= 2
    return page_bytes


Run = tuple[int, int]
"""Neighbouring places: the first, and the one behind the last."""


class RunPool:
    """Who has which of so many places. They are taken and given back by threads, hence the lock.

    What is free is kept as runs of neighbours, since what lies together is copied in one go.
    """

    def __init__(self, places: int):
        self.places = places
        self.free = places
        self._lock = threading.Lock()
        self._starts = [0] if places else []
        """Where each free run begins, in order."""
        self._ends = {0: places} if places else {}

    def take_runs(self, count: int) -> list[Run] | None:
        """So many places, together where that is possible, or None where there are not enough."""
        with self._lock:
            if count > self.free:
                return None
            self.free -= count
            if count == 1:
                return [self._shorten(0, 1)]
            for index, start in enumerate(self._starts[:_LOOKED_AT]):
                if self._ends[start] - start >= count:
                    return [self._shorten(index, count)]
            runs = []
            while count:
                runs.append(self._shorten(0, count))
                count -= runs[-1][1] - runs[-1][0]
            return runs

    def _shorten(self, index: int, count: int) -> Run:
        """Take up to so many places from the beginning of a free run."""
        start = self._starts[index]
        end = self._ends.pop(start)
        taken = min(start + count, end)
        if taken < end:
            self._starts[index] = taken
            self._ends[taken] = end
        else:
            del self._starts[index]
        return start, taken

    def give_back_runs(self, runs: Sequence[Run]) -> None:
        with self._lock:
            for start, end in runs:
                self._join(start, end)
                self.free += end - start
            assert self.free <= self.places, "a place was given back twice"

    def _join(self, start: int, end: int) -> None:
        """Add a free run, as one with its neighbours."""
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == end:
            end = self._ends.pop(end)
            del self._starts[index]
        if index and self._ends[self._starts[index - 1]] == start:
            self._ends[self._starts[index - 1]] = end
        else:
            self._starts.insert(index, start)
            self._ends[start] = end


def runs_of(pages: Pages) -> list[Run]:
    """The runs of neighbours among pages, in order."""
    if len(pages) and not pages.flags.writeable:
        # A part of the arena's own numbers, which are read-only: one run, nothing to look for.
        first = int(pages[0])
        return [(first, first + len(pages))]
    if len(pages) <= 1:
        return [(page, page + 1) for page in pages.tolist()]
    breaks = np.flatnonzero(np.diff(pages) != 1)
    firsts, lasts = pages[np.append(0, breaks + 1)], pages[np.append(breaks, len(pages) - 1)]
    return list(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


class Arena(RunPool):
    """Pages of this process's memory."""

    def __init__(self, page_count: int, page_bytes: int = PAGE_BYTES):
        super().__init__(page_count)
        self.page_count = page_count
        self.page_bytes = page_bytes
        self.memory: Bytes = map_memory(page_count * page_bytes)
        self._numbers = np.arange(page_count, dtype=np.int64)
        self._numbers.flags.writeable = False
        self._untouched = iter(range(0, page_count * page_bytes, _TOUCH_BYTES))
        self._touched_bytes = 0

    @property
    def free_pages(self) -> int:
        return self.free

    def take(self, count: int) -> Pages | None:
        """Pages for an object, or None where there are not enough."""
        runs = self.take_runs(count)
        if runs is None:
            return None
        parts = [self._numbers[start:end] for start, end in runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def give_back(self, pages: Pages) -> None:
        self.give_back_runs(runs_of(pages))

    def source(self, pages: Pages) -> "PagedSource":
        return PagedSource(self.memory, pages, self.page_bytes)

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

    __slots__ = ("_memory", "_page_bytes", "_pages")
    pieces_at_once = 1

    def __init__(self, memory: Bytes, pages: Pages, page_bytes: int):
        self._memory = memory
        self._pages = pages
        self._page_bytes = page_bytes

    def buffers(self, offset: int, nbytes: int) -> Sequence[Bytes]:
        """Neighbouring pages are one buffer."""
        page_bytes = self._page_bytes
        first, last = offset // page_bytes, (offset + nbytes - 1) // page_bytes
        skipped, parts = offset - first * page_bytes, []
        for start, end in runs_of(self._pages[first : last + 1]):
            length = min(nbytes, (end - start) * page_bytes - skipped)
            begin = start * page_bytes + skipped
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
