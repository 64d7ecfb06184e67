"""Slots: one preallocated file per directory, cut into places of one block; nothing is created or removed."""

import contextlib
import errno
import os
from collections.abc import Sequence

from kvspill.errors import UsageError
from kvspill.storage.directio import preallocate
from kvspill.storage.files.place import BookedPlace, Shape, Spot
from kvspill.storage.files.site import Site
from kvspill.storage.stamps import BLOCK_BYTES, Identity

SLOT_FILE = f"{1:032x}-0"
"""Named as files of a run directory are, so that it is removed with them."""


class SlotPlace(BookedPlace):
    """An object takes as many slots as it needs, wherever they are free; a delete only marks them free."""

    name = "slots"
    frees_by_mark = True

    def __init__(self, sites: Sequence[Site], shape: Shape):
        super().__init__(sites, shape)
        wanted = max(shape.unit_bytes, shape.alignment)
        # The largest piece of whole blocks that fits a system call and cuts a slot into equal ones.
        block = max(BLOCK_BYTES, shape.alignment)
        pieces = -(-wanted // shape.io_size)
        self._piece_bytes = -(-wanted // pieces // block) * block
        self.slot_bytes = -(-wanted // self._piece_bytes) * self._piece_bytes
        self.about = f"slots of {self.slot_bytes} bytes in one preallocated file, opened once"
        self._free_slots: list[list[int]] = []
        """Offsets of free slots, by site."""
        self._fds: list[int] = []

    @property
    def piece_bytes(self) -> int:
        return self._piece_bytes

    def stored_bytes(self, nbytes: int) -> int:
        return max(1, -(-nbytes // self.slot_bytes)) * self.slot_bytes

    def prepare(self) -> None:
        slots = self.shape.capacity_bytes // self.slot_bytes
        if slots < 1:
            raise UsageError(
                f"--storage-capacity-gb: {self.shape.capacity_bytes} bytes hold no slot of "
                f"{self.slot_bytes} bytes; give more, or fewer --block-tokens"
            )
        per_site = -(-slots // len(self.sites))
        for site in self.sites:
            fd = site.open(SLOT_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL, shared=True)
            self._fds.append(fd)
            try:
                if not (site.access.preallocates and preallocate(fd, per_site * self.slot_bytes)):
                    os.ftruncate(fd, per_site * self.slot_bytes)
            except OSError as error:
                raise UsageError(
                    f"--layout slots: {per_site * self.slot_bytes} bytes cannot be reserved in "
                    f"{site.run.root} ({error.strerror}); give a smaller --storage-capacity-gb"
                ) from error
            # The lowest offsets are taken first.
            self._free_slots.append([slot * self.slot_bytes for slot in reversed(range(per_site))])

    def allot(self, identity: Identity, nbytes: int) -> Spot:
        wanted = self.stored_bytes(nbytes) // self.slot_bytes
        count = len(self.sites)
        with self._lock:
            for number in range(identity.key_hash % count, identity.key_hash % count + count):
                index = number % count
                free = self._free_slots[index]
                if len(free) >= wanted:
                    parts = tuple(free.pop() for _ in range(wanted))
                    return Spot(self.sites[index], SLOT_FILE, parts, self.slot_bytes, self._fds[index])
        raise OSError(errno.ENOSPC, f"{wanted} slots are not free")

    def _free(self, spot: Spot) -> None:
        with self._lock:
            self._free_slots[self.sites.index(spot.site)].extend(reversed(spot.parts))

    def close(self) -> None:
        fds, self._fds = self._fds, []
        for fd in fds:
            # The run directory is removed all the same.
            with contextlib.suppress(OSError):
                os.close(fd)
