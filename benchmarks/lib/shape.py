"""The shape of one measurement, obeyed by both sides: what is in flight, and in how many files."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

MIB = 1 << 20
LANES_PER_ENTRY = 4
"""Pieces of one entry that kvspill has in flight at most."""
MIX_CYCLE = 13
"""Twelve reads, then one write."""
_MIX_WRITE_AT = 6


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the comparison."""

    op: str
    """read, write or mix."""
    entry_bytes: int
    in_flight: int
    """Entries asked for at once."""
    io_size: int = 4 * MIB
    io_threads: int = 32
    memory: bool = False
    """True on tmpfs: no O_DIRECT, no preallocation, and one writer per file because its inode is locked."""

    @property
    def piece_bytes(self) -> int:
        return min(self.io_size, self.entry_bytes)

    @property
    def lanes(self) -> int:
        """Pieces of one entry in flight."""
        if self.memory and self.op != "read":
            return 1
        pieces = -(-self.entry_bytes // self.io_size)
        return min(LANES_PER_ENTRY, pieces, self.io_threads)

    @property
    def pieces_in_flight(self) -> int:
        return self.slots * self.lanes

    @property
    def slots(self) -> int:
        """Entries being moved at once; the others asked for wait for a thread."""
        return min(self.in_flight, max(1, self.io_threads // self.lanes))

    @property
    def label(self) -> str:
        return f"{self.op} {self.entry_bytes // MIB} MiB x{self.in_flight}"

    def check(self) -> None:
        """Refuse shapes that the two sides could not share exactly."""
        if self.entry_bytes % (self.lanes * self.piece_bytes):
            raise ValueError(
                f"{self.entry_bytes} bytes do not divide into {self.lanes} lanes of {self.piece_bytes}-byte "
                "pieces: choose an --io-size that divides the entries"
            )


@dataclass(frozen=True, slots=True)
class Op:
    """One entry to move: an old one to read, or a fresh one to write."""

    write: bool
    number: int
    """Which old entry, or which fresh one."""


def operations(op: str, old_entries: int) -> Iterator[Op]:
    """The endless sequence of entries that both sides are asked for, in this order."""
    fresh, old = count(), count()
    for index in count():
        if op == "write" or (op == "mix" and index % MIX_CYCLE == _MIX_WRITE_AT):
            yield Op(True, next(fresh))
        else:
            yield Op(False, next(old) % old_entries)
