"""The one bounded pool of aligned memory: random base data that writes are made from, and its leases."""

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from kvspill.storage.stamps import BLOCK_BYTES, STAMP_WORDS, WORDS_PER_BLOCK, Bytes, block_padded

HUGE_PAGE_BYTES = 2 << 20
BASE_BYTES_MIN = 64 << 20
"""Less variety than this, and an array with a large enough window could compress it away."""
_FILL_CHUNK_BYTES = 256 << 10


def map_memory(nbytes: int) -> Bytes:
    """Untouched anonymous memory on a huge page boundary; it takes no room until it is written to."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    region = mmap.mmap(-1, max(nbytes, 1) + HUGE_PAGE_BYTES, flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        region.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(region, dtype=np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE_BYTES
    return whole[start : start + nbytes]


@dataclass(slots=True)
class _Slot:
    """One io-size part of the base; a lease is exclusive because stamping writes into it."""

    start: int
    filled: bool = False
    cursor: int = 0
    filling: threading.Lock = field(default_factory=threading.Lock)


class DataPlane:
    """Base data in slots of io_size bytes. Reads never land in it, so its variety cannot wear off and it
    remains the reference that a full verification compares with.

    There are as many slots as threads may lease at once, so that nobody ever waits for one (C4), and
    they are handed out in turn, so that all of the base is used. A slot is filled when first needed.
    """

    def __init__(self, io_size: int, leases_max: int):
        if io_size < BLOCK_BYTES or io_size % BLOCK_BYTES:
            raise ValueError(f"io_size {io_size} is not a multiple of {BLOCK_BYTES}")
        self.io_size = io_size
        self.salt = os.urandom(16)
        count = max(leases_max, -(-BASE_BYTES_MIN // io_size))
        self.base = map_memory(count * io_size)
        self._slots = [_Slot(index * io_size) for index in range(count)]
        self._free = deque(self._slots)
        self.leases_max = count
        self._turn = 0
        self._turn_lock = threading.Lock()
        self._filled = False

    @contextmanager
    def lease(self, nbytes: int) -> Iterator[Bytes]:
        """Base data of nbytes (at most io_size) for exclusive use."""
        slot = self._free.popleft()
        try:
            self._fill(slot)
            if slot.cursor + nbytes > self.io_size:
                slot.cursor = 0
            start = slot.start + slot.cursor
            # Small pieces walk through the slot: otherwise they would all be made of its first bytes.
            slot.cursor += block_padded(nbytes)
            yield self.base[start : start + nbytes]
        finally:
            self._free.append(slot)

    def sample(self, nbytes: int) -> Bytes:
        """Base data to copy from; its stamps may change at any time."""
        start = self.sample_start(nbytes)
        return self.base[start : start + nbytes]

    def sample_start(self, nbytes: int) -> int:
        """Where in the base a sample of so many bytes begins."""
        span = -(-nbytes // self.io_size)
        with self._turn_lock:
            first = self._turn if self._turn + span <= len(self._slots) else 0
            self._turn = first + span
        for slot in self._slots[first : first + span]:
            self._fill(slot)
        return first * self.io_size

    @property
    def filled(self) -> bool:
        """Whether all of the base is there: then nobody who takes a sample waits for one to be filled."""
        self._filled = self._filled or all(slot.filled for slot in self._slots)
        return self._filled

    def fill_some(self, goes_on: Callable[[], bool]) -> None:
        """Fill slots ahead of use for as long as the caller can spare."""
        for slot in self._slots:
            if not goes_on():
                return
            self._fill(slot)

    def _fill(self, slot: _Slot) -> None:
        if slot.filled:
            return
        with slot.filling:
            if not slot.filled:
                fill_random(self.base[slot.start : slot.start + self.io_size], self.salt, slot.start)
                slot.filled = True


def fill_random(memory: Bytes, salt: bytes, start: int) -> None:
    """Fill memory, which lies at byte `start` of the base, with data that does not compress."""
    seed = [int.from_bytes(salt, "little"), start]
    words = memory.view(np.uint64)
    random = np.random.Generator(np.random.SFC64(seed))
    step = _FILL_CHUNK_BYTES // 8
    for first in range(0, len(words), step):
        part = words[first : first + step]
        part[:] = random.integers(0, 2**64, size=len(part), dtype=np.uint64)
    numbers = np.arange(start // BLOCK_BYTES, (start + len(memory)) // BLOCK_BYTES, dtype=np.uint64)
    words.reshape(-1, WORDS_PER_BLOCK)[:, STAMP_WORDS - 1] = numbers
