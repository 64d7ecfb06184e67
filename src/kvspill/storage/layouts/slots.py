"""Slots: one preallocated file per directory, cut into places of one block; nothing is created or removed."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kvspill.errors import UsageError
from kvspill.storage.base import Capabilities
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import preallocate
from kvspill.storage.filejobs import Site
from kvspill.storage.files import FilesOptions
from kvspill.storage.jobs import Job
from kvspill.storage.layouts import Layout
from kvspill.storage.layouts.extents import Extent, ExtentsBackend, piece_bytes_of

SLOT_FILE = f"{1:032x}-0"
"""Named as files of a run directory are, so that it is removed with them."""


class SlotsBackend(ExtentsBackend):
    """An object takes as many slots as it needs, wherever they are free; a delete only marks them free."""

    def __init__(
        self,
        roots: Sequence[Path],
        options: FilesOptions,
        layout: Layout,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
    ):
        super().__init__(roots, options, layout, clock_ns, plane)
        self._free: dict[int, list[int]] = {}
        """Offsets of free slots, by site."""
        self._fds: dict[int, int] = {}

    @property
    def capabilities(self) -> Capabilities:
        files = super().capabilities
        slots = f"slots of {self._slot_bytes} bytes in one preallocated file"
        return Capabilities("slots", False, files.direct_io, files.verifies, f"{slots}; {files.description}")

    @property
    def _slot_bytes(self) -> int:
        """A block, rounded up so that it is cut into whole pieces."""
        wanted = max(self._layout.unit_bytes, self._alignment)
        piece = piece_bytes_of(wanted, self._options.io_size)
        return -(-wanted // piece) * piece

    def stored_bytes(self, nbytes: int) -> int:
        return max(1, -(-nbytes // self._slot_bytes)) * self._slot_bytes

    def _prepare(self) -> None:
        super()._prepare()
        if not self._sites:
            return
        slots = self._layout.capacity_bytes // self._slot_bytes
        if slots < 1:
            raise UsageError(
                f"--storage-capacity-gb: {self._layout.capacity_bytes} bytes hold no slot of "
                f"{self._slot_bytes} bytes; give more, or fewer --block-tokens"
            )
        per_site = -(-slots // len(self._sites))
        for site in self._sites:
            fd = self._fds[id(site)] = site.open(SLOT_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                if not (site.access.preallocates and preallocate(fd, per_site * self._slot_bytes)):
                    os.ftruncate(fd, per_site * self._slot_bytes)
            except OSError as error:
                raise UsageError(
                    f"--layout slots: {per_site * self._slot_bytes} bytes cannot be reserved in "
                    f"{site.run.root} ({error.strerror}); give a smaller --storage-capacity-gb"
                ) from error
            # The lowest offsets are taken first.
            self._free[id(site)] = [slot * self._slot_bytes for slot in reversed(range(per_site))]

    def _allocate(self, site: Site, nbytes: int) -> tuple[Extent, int] | None:
        wanted = self.stored_bytes(nbytes) // self._slot_bytes
        for candidate in (site, *self._sites):
            free = self._free[id(candidate)]
            if len(free) >= wanted:
                offsets = tuple(free.pop() for _ in range(wanted))
                return Extent(candidate, SLOT_FILE, offsets, self._slot_bytes, self._fds[id(candidate)]), 0
        return None

    def _freeing(self, extent: Extent) -> Job:  # noqa: ARG002 - a slot is only marked free
        return Job()

    def _freed(self, extent: Extent) -> None:
        self._free[id(extent.site)].extend(reversed(extent.offsets))

    def close_now(self) -> None:
        super().close_now()
        # A thread stuck in a system call may wake up later: its descriptor must not be another file's.
        if not self.stuck(self._clock_ns(), 0):
            for fd in self._fds.values():
                os.close(fd)
        self._fds = {}
