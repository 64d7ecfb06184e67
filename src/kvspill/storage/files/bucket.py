"""Buckets: objects are appended to files of 256 MiB or 500 keys; a file goes when its last object is gone."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from kvspill.errors import UsageError
from kvspill.storage.directio import preallocate, punch_hole
from kvspill.storage.files.place import BookedPlace, Shape, Spot
from kvspill.storage.files.site import Site
from kvspill.storage.rundir import close_quietly, usage_errors
from kvspill.storage.stamps import BLOCK_BYTES, Identity

BUCKET_BYTES = 256 << 20
BUCKET_KEYS = 500
_AHEAD_SHARE = 16
"""Buckets are reserved as a whole, but all together at most this part of the capacity ahead: reserving waits
for writes to the same file that are under way, so that small steps cost time."""


@dataclass(slots=True, eq=False)
class _Bucket:
    """One file. It takes objects until it is full."""

    file: str
    used_bytes: int = 0
    reserved_bytes: int = 0
    """Where the room ends that was reserved for the file; objects are only given what lies before."""
    held_bytes: int = 0
    """What the file has on the disk: what was reserved, without its holes."""
    keys: int = 0
    live: int = 0


class BucketPlace(BookedPlace):
    """Each directory has one bucket that is being filled.

    What lies on the disk is bounded by construction: an object's room is reserved before it is handed out
    and given back with the object; what is reserved ahead is limited, and a full bucket gives it back.
    """

    name = "buckets"
    about = f"buckets of {BUCKET_BYTES >> 20} MiB or {BUCKET_KEYS} keys"

    def __init__(self, sites: Sequence[Site], shape: Shape):
        super().__init__(sites, shape)
        # A hole gives back whole blocks of the file system only.
        self._unit_bytes = max(shape.alignment, BLOCK_BYTES)
        self._ahead_bytes = shape.capacity_bytes // _AHEAD_SHARE // max(1, len(sites))
        self._filling: dict[Site, _Bucket] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._turns = {site: Lock() for site in sites}
        """Room in a directory is handed out to one after the other."""
        self._number = 0

    def padded(self, nbytes: int) -> int:
        # Also an empty object has a place of its own.
        return max(1, -(-nbytes // self._unit_bytes)) * self._unit_bytes

    def prepare(self) -> None:
        for site in self.sites:
            with usage_errors(site.run.root):
                if not _has_holes(site):
                    raise UsageError(
                        f"--layout buckets: {site.access.filesystem} at {site.run.root} cannot give back a "
                        "part of a file, so what is deleted would keep its room; use another --layout"
                    )

    def allot(self, identity: Identity, nbytes: int) -> Spot:
        site, padded = self.site_of(identity), self.padded(nbytes)
        with self._turns[site]:
            bucket = self._taking(site, padded)
            try:
                self._reserve(site, bucket, padded)
            except OSError:
                if self._lost_its_last(site, bucket):
                    self._unlink(site, bucket)
                raise
            spot = Spot(site, bucket.file, (bucket.used_bytes,), padded)
            bucket.used_bytes += padded
            bucket.keys += 1
        return spot

    def _taking(self, site: Site, padded: int) -> _Bucket:
        """The bucket that takes the next object, which counts as live already: its file must not go."""
        with self._lock:
            bucket = self._filling.get(site)
            if bucket is not None and _takes(bucket, padded):
                bucket.live += 1
                return bucket
        if bucket is not None:
            self._trim(site, bucket)
        with self._lock:
            self._number += 1
            bucket = _Bucket(f"{self._number:032x}-1", live=1)
            self._filling[site] = self._buckets[bucket.file] = bucket
        return bucket

    def _reserve(self, site: Site, bucket: _Bucket, padded: int) -> None:
        """Have the bucket's room reach beyond the next object, and some way ahead."""
        needed = bucket.used_bytes + padded
        if needed <= bucket.reserved_bytes:
            return
        with self._lock:
            spare_bytes = self.shape.capacity_bytes - sum(one.held_bytes for one in self._buckets.values())
        ahead_bytes = min(self._ahead_bytes, spare_bytes) // self._unit_bytes * self._unit_bytes
        end = max(needed, min(bucket.reserved_bytes + ahead_bytes, BUCKET_BYTES))
        more_bytes = end - bucket.reserved_bytes
        fd = site.open(bucket.file, os.O_RDWR | os.O_CREAT)
        try:
            if site.access.preallocates:
                preallocate(fd, more_bytes, bucket.reserved_bytes)
        finally:
            close_quietly(fd)
        with self._lock:
            bucket.reserved_bytes = end
            bucket.held_bytes += more_bytes

    def _trim(self, site: Site, bucket: _Bucket) -> None:
        """A full bucket gives back what it has reserved ahead."""
        # Its last object may take the file with it.
        with suppress(FileNotFoundError):
            fd = site.open(bucket.file, os.O_RDWR)
            try:
                os.ftruncate(fd, bucket.used_bytes)
            finally:
                close_quietly(fd)
        with self._lock:
            bucket.held_bytes -= bucket.reserved_bytes - bucket.used_bytes
            bucket.reserved_bytes = bucket.used_bytes

    def _lost_its_last(self, site: Site, bucket: _Bucket) -> bool:
        """A bucket has an object less; true where it was the last, so that the file has to go."""
        with self._lock:
            bucket.live -= 1
            # Nothing may be appended to a file that is about to go.
            if not bucket.live and self._filling.get(site) is bucket:
                del self._filling[site]
            return not bucket.live

    def _unlink(self, site: Site, bucket: _Bucket) -> None:
        try:
            os.unlink(bucket.file, dir_fd=site.run.fd)
        except FileNotFoundError:
            # A file that could not be made takes no room.
            pass
        except OSError:
            # The removal that failed is what is told; the file gives back what it can.
            with suppress(OSError):
                self._trim(site, bucket)
            raise
        with self._lock:
            del self._buckets[bucket.file]

    def _free(self, spot: Spot) -> None:
        """Give an object's room back: the whole file with its last object, else a hole in it."""
        bucket = self._buckets[spot.file]
        if self._lost_its_last(spot.site, bucket):
            self._unlink(spot.site, bucket)
            return
        # The last object may be quicker and take the file with it.
        with suppress(FileNotFoundError):
            fd = spot.site.open(spot.file, os.O_RDWR)
            try:
                punch_hole(fd, spot.parts[0], spot.part_bytes)
            finally:
                close_quietly(fd)
            with self._lock:
                bucket.held_bytes -= spot.part_bytes

    def _keep(self, spot: Spot) -> None:
        with self._lock:
            self._buckets[spot.file].live += 1


def _takes(bucket: _Bucket, padded: int) -> bool:
    fits = not bucket.keys or bucket.used_bytes + padded <= BUCKET_BYTES
    return fits and bucket.keys < BUCKET_KEYS


def _has_holes(site: Site) -> bool:
    """Whether the file system gives back the room of a part of a file."""
    fd = os.open("probe", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=site.run.fd)
    try:
        os.ftruncate(fd, 2 * BLOCK_BYTES)
        return punch_hole(fd, 0, BLOCK_BYTES)
    finally:
        close_quietly(fd)
        os.unlink("probe", dir_fd=site.run.fd)
