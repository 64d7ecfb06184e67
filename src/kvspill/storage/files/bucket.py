"""Buckets: objects are appended to files of 256 MB or 500 keys; a file goes when its last object is gone."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kvspill.storage.directio import punch_hole
from kvspill.storage.files.place import BookedPlace, Shape, Spot
from kvspill.storage.files.site import Site
from kvspill.storage.stamps import Identity

BUCKET_BYTES = 256 << 20
BUCKET_KEYS = 500


@dataclass(slots=True, eq=False)
class _Bucket:
    """One file. It takes objects until it is full."""

    file: str
    limit_bytes: int
    used_bytes: int = 0
    keys: int = 0
    live: int = 0


class BucketPlace(BookedPlace):
    """Each directory has one bucket that is being filled."""

    name = "buckets"
    about = f"buckets of {BUCKET_BYTES >> 20} MiB or {BUCKET_KEYS} keys"

    def __init__(self, sites: Sequence[Site], shape: Shape):
        super().__init__(sites, shape)
        self._filling: dict[Site, _Bucket] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._number = 0

    def padded(self, nbytes: int) -> int:
        # Also an empty object has a place of its own.
        return max(super().padded(nbytes), self.shape.alignment)

    def allot(self, identity: Identity, nbytes: int) -> Spot:
        site, padded = self.site_of(identity), self.padded(nbytes)
        reserve_bytes = 0
        with self._lock:
            bucket = self._filling.get(site)
            if (
                bucket is None
                or bucket.used_bytes + padded > bucket.limit_bytes
                or bucket.keys >= BUCKET_KEYS
            ):
                self._number += 1
                reserve_bytes = max(BUCKET_BYTES, padded)
                bucket = _Bucket(f"{self._number:032x}-1", reserve_bytes)
                self._filling[site] = self._buckets[bucket.file] = bucket
            offset = bucket.used_bytes
            bucket.used_bytes += padded
            bucket.keys += 1
            bucket.live += 1
        return Spot(site, bucket.file, (offset,), padded, flags=os.O_CREAT, reserve_bytes=reserve_bytes)

    def _free(self, spot: Spot) -> None:
        """Give an object's room back: the whole file with its last object, else a hole in it."""
        with self._lock:
            bucket = self._buckets[spot.file]
            bucket.live -= 1
            whole = bucket.live == 0
            # Nothing may be appended to a file that is about to go.
            if whole and self._filling.get(spot.site) is bucket:
                del self._filling[spot.site]
        # The last object may be quicker and take the file with it; one never opened made no file.
        with suppress(FileNotFoundError):
            if whole:
                os.unlink(spot.file, dir_fd=spot.site.run.fd)
            else:
                self._punch(spot)
        if whole:
            del self._buckets[spot.file]

    def _keep(self, spot: Spot) -> None:
        with self._lock:
            self._buckets[spot.file].live += 1

    def _punch(self, spot: Spot) -> None:
        """Where a file system has no holes, the room comes back with the whole file."""
        fd = spot.site.open(spot.file, os.O_RDWR)
        try:
            punch_hole(fd, spot.parts[0], spot.part_bytes)
        finally:
            os.close(fd)
