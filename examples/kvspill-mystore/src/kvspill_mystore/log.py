"""The log file of mystore: room at its end, an index of what lies where, holes for what was deleted."""

import ctypes
import os
import threading
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from kvspill.errors import UsageError
from kvspill.storage.base import ObjectRef
from kvspill.storage.directio import probe
from kvspill.storage.rundir import RunDir
from kvspill.storage.stamps import BLOCK_BYTES, blocks_of

# A name that `kvspill clean` knows as a run's, so that it can remove what a killed run left.
LOG_NAME = f"{0:032x}-0"
_PUNCH_HOLE = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE."""
_libc = ctypes.CDLL(None, use_errno=True)


class Record(NamedTuple):
    """Where an object lies in the log, and the checksum of each of its pieces."""

    offset: int
    nbytes: int
    checksums: tuple[int, ...]


class Log:
    """One file in a private directory of the run. Its methods may be called from any thread."""

    def __init__(self, run: RunDir, direct: str):
        self.access = probe(run, direct)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | (os.O_DIRECT * self.access.direct)
        self.fd = os.open(LOG_NAME, flags, 0o600, dir_fd=run.fd)
        self._lock = threading.Lock()
        self._index: dict[tuple[str, int], Record] = {}
        self._end = 0
        if self.punch(0, BLOCK_BYTES):
            raise UsageError(
                f"--cache-dir {run.root}: {self.access.filesystem} cannot free a part of a file, so that a "
                "log would only grow; name a directory on ext4, xfs or btrfs"
            )

    def append(self, nbytes: int) -> int:
        """Room at the end of the log; returns where."""
        with self._lock:
            offset, self._end = self._end, self._end + padded(nbytes)
        return offset

    def find(self, ref: ObjectRef) -> Record | None:
        with self._lock:
            return self._index.get((ref.key, ref.generation))

    def keep(self, ref: ObjectRef, record: Record | None) -> Record | None:
        """Make an object readable, or none of that name; returns the record that this replaces."""
        with self._lock:
            before = self._index.pop((ref.key, ref.generation), None)
            if record is not None:
                self._index[ref.key, ref.generation] = record
        return before

    def punch(self, offset: int, nbytes: int) -> int:
        """Give the room of a part of the log back to the file system; returns an errno, or 0."""
        where, length = ctypes.c_int64(offset), ctypes.c_int64(padded(nbytes))
        return 0 if _libc.fallocate(self.fd, _PUNCH_HOLE, where, length) == 0 else ctypes.get_errno()

    def close(self) -> None:
        os.close(self.fd)


def padded(nbytes: int) -> int:
    """Bytes in whole blocks, as direct I/O needs them."""
    return blocks_of(nbytes) * BLOCK_BYTES


def checksum(buffers: Sequence[Any]) -> int:
    value = 0
    for buffer in buffers:
        value = zlib.crc32(buffer, value)
    return value
