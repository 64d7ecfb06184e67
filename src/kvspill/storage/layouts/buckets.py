"""Buckets: objects are appended to files of 256 MB or 500 keys; a file goes when its last object is gone."""

import ctypes
import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.storage.base import Capabilities
from kvspill.storage.buffers import DataPlane
from kvspill.storage.filejobs import RemovalJob, Site
from kvspill.storage.files import FilesOptions
from kvspill.storage.jobs import Job
from kvspill.storage.layouts import Layout
from kvspill.storage.layouts.extents import Extent, ExtentsBackend

BUCKET_BYTES = 256 << 20
BUCKET_KEYS = 500

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True, eq=False)
class _Bucket:
    """One file. It takes objects until it is full."""

    site: Site
    file: str
    limit_bytes: int
    used_bytes: int = 0
    keys: int = 0
    live: int = 0


class FreeJob(RemovalJob):
    """Gives an object's room back: the whole file with its last object, else a hole in it."""

    __slots__ = ("extent", "whole")

    def __init__(self, extent: Extent, whole: bool):
        super().__init__()
        self.extent = extent
        self.whole = whole

    def remove(self) -> None:
        if self.whole:
            os.unlink(self.extent.file, dir_fd=self.extent.site.run.fd)
        else:
            self._punch()

    def _punch(self) -> None:
        try:
            fd = self.extent.site.open(self.extent.file, os.O_RDWR)
        except FileNotFoundError:
            # The last object was quicker and took the file with it.
            return
        try:
            offset, nbytes = ctypes.c_int64(self.extent.offsets[0]), ctypes.c_int64(self.extent.part_bytes)
            if _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, offset, nbytes) == 0:
                return
            number = ctypes.get_errno()
            # Where a file system has no holes, the room comes back with the whole file.
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(number, os.strerror(number))
        finally:
            os.close(fd)


class BucketsBackend(ExtentsBackend):
    """Each directory has one bucket that is being filled."""

    def __init__(
        self,
        roots: Sequence[Path],
        options: FilesOptions,
        layout: Layout,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
    ):
        super().__init__(roots, options, layout, clock_ns, plane)
        self._open: dict[int, _Bucket] = {}
        self._buckets: dict[tuple[int, str], _Bucket] = {}
        self._number = 0

    @property
    def capabilities(self) -> Capabilities:
        files = super().capabilities
        buckets = f"buckets of {BUCKET_BYTES >> 20} MiB or {BUCKET_KEYS} keys"
        return Capabilities(
            "buckets", False, files.direct_io, files.verifies, f"{buckets}; {files.description}"
        )

    def _allocate(self, site: Site, nbytes: int) -> tuple[Extent, int] | None:
        padded = max(self._padded(nbytes), self._alignment)
        bucket = self._open.get(id(site))
        reserve_bytes = 0
        if bucket is None or bucket.used_bytes + padded > bucket.limit_bytes or bucket.keys >= BUCKET_KEYS:
            self._number += 1
            bucket = _Bucket(site, f"{self._number:032x}-1", max(BUCKET_BYTES, padded))
            self._open[id(site)] = self._buckets[id(site), bucket.file] = bucket
            reserve_bytes = bucket.limit_bytes
        extent = Extent(site, bucket.file, (bucket.used_bytes,), padded)
        bucket.used_bytes += padded
        bucket.keys += 1
        bucket.live += 1
        return extent, reserve_bytes

    def _freeing(self, extent: Extent) -> Job:
        bucket = self._buckets[id(extent.site), extent.file]
        bucket.live -= 1
        # Nothing may be appended to a file that is about to go.
        if bucket.live == 0 and self._open.get(id(extent.site)) is bucket:
            del self._open[id(extent.site)]
        return FreeJob(extent, whole=bucket.live == 0)

    def _freed(self, extent: Extent) -> None:
        """The file is gone with its last object; a hole is filled by nobody."""
        place = (id(extent.site), extent.file)
        if place in self._buckets and self._buckets[place].live == 0:
            del self._buckets[place]
