"""Where objects lie: what a layout must answer to name, reserve, publish and free an object's room."""

import errno
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from kvspill.storage.fastio import Span
from kvspill.storage.files.site import Site
from kvspill.storage.stamps import BLOCK_BYTES, Identity


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that a layout goes by."""

    io_size: int
    alignment: int = BLOCK_BYTES
    unit_bytes: int = 0
    """The usual object: a block of KV."""
    capacity_bytes: int = 0
    renames: bool = True
    """Whether a file of one object has a temporary name until it is whole."""


class Spot(NamedTuple):
    """An object's room in a file."""

    site: Site
    file: str
    parts: tuple[int, ...] = ()
    """Offsets of its parts, in the order of its bytes; none where it has the file to itself."""
    part_bytes: int = 0
    fd: int = -1
    """The file's descriptor where it stays open; else each job opens the file."""
    flags: int = 0
    """How the file is made when the object is written."""
    reserve_bytes: int = 0
    """What the file must have reserved before the object is written."""

    def places(self, span: Span) -> npt.NDArray[np.int64]:
        """Where each piece of the object begins in the file; only the last part may end within a piece."""
        if len(self.parts) == 1:
            first = self.parts[0]
            return np.arange(first, first + span.total_bytes, span.piece_bytes, dtype=np.int64)
        at = np.arange(span.piece_count, dtype=np.int64) * span.piece_bytes
        return np.array(self.parts, dtype=np.int64)[at // self.part_bytes] + at % self.part_bytes

    def ranges(self, nbytes: int) -> Iterator[tuple[int, int]]:
        """Offset and length of each part that the object's bytes take."""
        part_bytes = self.part_bytes or nbytes
        for index, offset in enumerate(self.parts or (0,)):
            length = min(part_bytes, nbytes - index * part_bytes)
            if length > 0:
                yield offset, length


class Place(ABC):
    """A layout. Its methods are called by any thread at any time, `prepare` once before all others."""

    name: str
    about: str = ""
    """One phrase for the tier's description, or nothing."""
    frees_by_mark: ClassVar[bool] = False
    """True where an object is removed without a system call."""

    def __init__(self, sites: Sequence[Site], shape: Shape):
        self.sites = sites
        self.shape = shape

    @property
    def piece_bytes(self) -> int:
        """Bytes of an object that one system call moves."""
        return self.shape.io_size

    def padded(self, nbytes: int) -> int:
        """Bytes that are moved for an object of nbytes (E4)."""
        return -(-nbytes // self.shape.alignment) * self.shape.alignment

    def stored_bytes(self, nbytes: int) -> int:
        """Bytes that an object of nbytes takes (C7)."""
        return self.padded(nbytes)

    def site_of(self, identity: Identity) -> Site:
        """Objects are spread over the sites by a stable hash."""
        return self.sites[identity.key_hash % len(self.sites)]

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Make what the layout needs before the first object."""

    @abstractmethod
    def find(self, identity: Identity) -> Spot:
        """Where an object lies; raises ENOENT where it is known not to be there."""

    @abstractmethod
    def allot(self, identity: Identity, nbytes: int) -> Spot:
        """Room for a new object; raises ENOSPC where there is none."""

    @abstractmethod
    def publish(self, identity: Identity, spot: Spot) -> None:
        """The object is whole: from now on it is found. What it replaces is freed."""

    @abstractmethod
    def abandon(self, spot: Spot, opened: bool) -> None:
        """The object was not written: take its room back. Opened tells whether its file was."""

    @abstractmethod
    def remove(self, identity: Identity) -> None:
        """Remove an object and free its room; raises ENOENT where there is none."""

    def close(self) -> None:  # noqa: B027 - most keep nothing open
        """Let go of what stays open. Safe to call twice."""


Name = tuple[str, int]
"""An object in the book of a place that keeps one: quicker to look up than an identity."""


def name_of(identity: Identity) -> Name:
    return identity.name, identity.generation


def missing(identity: Identity) -> FileNotFoundError:
    """The answer for an object that is not there."""
    return FileNotFoundError(errno.ENOENT, f"no object {identity.name}-{identity.generation}")


class BookedPlace(Place):
    """A layout that keeps a book of where its objects lie."""

    def __init__(self, sites: Sequence[Site], shape: Shape):
        super().__init__(sites, shape)
        self._lock = threading.Lock()
        self._book: dict[Name, Spot] = {}

    def find(self, identity: Identity) -> Spot:
        spot = self._book.get(name_of(identity))
        if spot is None:
            raise missing(identity)
        return spot

    def publish(self, identity: Identity, spot: Spot) -> None:
        with self._lock:
            replaced = self._book.get(name_of(identity))
            self._book[name_of(identity)] = spot
        if replaced is not None:
            # The new one is there, so that the write has not failed.
            with suppress(OSError):
                self._free(replaced)

    def abandon(self, spot: Spot, opened: bool) -> None:  # noqa: ARG002 - the file is not this object's alone
        self._free(spot)

    def remove(self, identity: Identity) -> None:
        spot = self._book.pop(name_of(identity), None)
        if spot is None:
            raise missing(identity)
        try:
            self._free(spot)
        except OSError:
            self._book[name_of(identity)] = spot
            self._keep(spot)
            raise

    @abstractmethod
    def _free(self, spot: Spot) -> None:
        """Give an object's room back."""

    def _keep(self, spot: Spot) -> None:
        """Its room could not be given back: the object is still there."""
