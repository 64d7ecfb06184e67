"""Which cells a calibration holds, in which order, and how long each takes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvspill.plan.cells import STORED, Cell
from kvspill.plan.fit import BOTH, BURST, DEPTH, LARGE, LONG, MANY, MIXED, PACED, PIECES, TOGETHER
from kvspill.records import GIB, MIB
from kvspill.texts import size_text

SLICE_SECONDS = 0.1
"""What passes a limit in this time may pass it at once: an entry of such a size shows how fast that is."""
_TOGETHER_COUNT = 12
"""Such entries: a few of them alone say little on a busy machine."""
MANY_BYTES = 4096
"""Entries that move in no time: what they take is what their files take."""
_MANY_BYTES_MAX = 64 * MIB
_PIECE_MIN = 4096
_FASTEST_BYTES_PER_SEC = 1e12
_MIXED_PIECES = 2
SMALLER = 4
"""How many times smaller the other pieces are."""
_PIECES_SECONDS = 0.6
_LONG_SECONDS = 3.0
"""What a long entry takes at most."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long a calibration may take, and how much of that its parts take."""

    total_seconds: float
    full_seconds: float
    """Of a cell with reads or writes alone under full load: a limit in slices shows over many of them."""
    cell_seconds: float
    """Of other cells under full load."""
    paced_seconds: float
    bursts: int
    rounds: int
    """Repetitions of the cells under full load, time permitting."""
    depths: tuple[int, ...]
    """Pieces in flight at which speed is measured besides."""
    cell_bytes: int
    """What a cell under full load writes at most, if that is enough for all lanes: a quick device is done
    with it sooner."""
    large_pieces: int
    """Pieces of an entry that keeps its lanes busy."""
    long_pieces: int
    """Pieces of a long entry at most: beyond a few times that a prediction is extrapolation (P2)."""
    mixtures: tuple[tuple[str, float], ...]
    """Shares of the workers that read while the others write."""
    piece_turns: int = 0
    """How often usual and smaller pieces take turns."""


_EVEN = ("1:1", 0.5)
_MIXTURES = (_EVEN, ("3:1", 0.75), ("1:3", 0.25))
FULL = Length(105, 3.0, 3.0, 1.2, 2, 5, (1, 2, 4, 8, 16), 5 * GIB // 2, 8, 64, _MIXTURES, 3)
QUICK = Length(17, 2.0, 1.0, 0.4, 1, 3, (1, 8), GIB, 4, 16, (_EVEN,))


@dataclass(frozen=True, slots=True)
class Schedule:
    """The cells of one device."""

    lanes: int
    write_lanes: int
    piece_bytes: int
    lanes_per_entry: int
    length: Length

    @property
    def large_bytes(self) -> int:
        """The entry that saturating cells read and write."""
        return self.length.large_pieces * self.piece_bytes

    @property
    def mixed_bytes(self) -> int:
        """The entry of mixtures: of a longer one several lanes write to one file, which makes each slower,
        with or without reads beside them."""
        return _MIXED_PIECES * self.piece_bytes

    @property
    def small_bytes(self) -> int:
        return max(4096, self.piece_bytes // 16)

    def stored(self) -> list[tuple[int, int]]:
        """Size and number of the entries that cells read."""
        small = max(self.length.depths)
        return [
            (self.large_bytes, self._workers(self.lanes) + 1),
            (self.mixed_bytes, self._workers(self.lanes)),
            (self.piece_bytes, small),
            (self.small_bytes, small),
        ]

    def held_bytes(self) -> int:
        """What lies on the device at most."""
        writers = 3 * self._workers(self.write_lanes or self.lanes)
        long_bytes = self.length.long_pieces * self.piece_bytes
        mixed_bytes = max(cell.write_bytes_max for cell in self.round() if cell.readers and cell.writers)
        written_bytes = max(writers * self.large_bytes, long_bytes, mixed_bytes)
        parts_bytes = (len(self.parts) - 1) * STORED * self.large_bytes
        return sum(size * count for size, count in self.stored()) + parts_bytes + long_bytes + written_bytes

    def written_at_most_bytes(self) -> int:
        """What is written in all, however quick the device."""
        once = list(self.once(_FASTEST_BYTES_PER_SEC, _FASTEST_BYTES_PER_SEC))
        stored = {(1, size): size * count for size, count in self.stored()}
        for cell in once:
            if cell.readers:
                stored.setdefault((cell.part, cell.nbytes), cell.nbytes * cell.stored_entries)
        repeated_bytes = self.length.rounds * sum(cell.written_at_most_bytes() for cell in self.round())
        return sum(stored.values()) + repeated_bytes + sum(cell.written_at_most_bytes() for cell in once)

    def _full(self, name: str, size: int, readers: int, writers: int, seconds: float) -> Cell:
        """A cell under full load."""
        large = size == self.large_bytes
        # Deletes of short entries may be slower than their writes: no mixture waits for them.
        written_bytes = max(self.length.cell_bytes // (1 if large else 2), 2 * writers * size)
        removals = 1 if large else written_bytes // size
        return Cell(
            name, size, readers, writers, seconds, removals_max=removals, write_bytes_max=written_bytes
        )

    @property
    def _both(self) -> tuple[int, int]:
        """Lanes of reads and of writes."""
        return self.lanes, self.write_lanes or self.lanes

    def _workers(self, lanes: int) -> int:
        """Enough entries for all lanes, and one that waits."""
        return -(-lanes // self.lanes_per_entry) + 1

    def round(self) -> Iterator[Cell]:
        """The cells under full load, which are repeated."""
        seconds, full_seconds = self.length.cell_seconds, self.length.full_seconds
        readers, writers = map(self._workers, self._both)
        large, mixed = self.large_bytes, self.mixed_bytes
        yield self._full(f"{LARGE} reads", large, readers, 0, full_seconds)
        yield self._full(f"{LARGE} writes", large, 0, writers, full_seconds)
        readers, writers = (-(-lanes // _MIXED_PIECES) + 1 for lanes in self._both)
        if self.write_lanes:
            yield self._full(f"{MIXED} 1:1", mixed, readers, writers, seconds)
            return
        for name, share in self.length.mixtures:
            some = max(1, round(share * readers))
            yield self._full(f"{MIXED} {name}", mixed, some, max(1, readers - some), seconds)

    def once(self, read_speed: float, write_speed: float) -> Iterator[Cell]:
        """The cells that are held once, given what the device does under full load in bytes per second."""
        length, piece, small = self.length, self.piece_bytes, self.small_bytes
        for size in (small, piece):
            pauses = [max(0.02, 3 * size / speed) for speed in (read_speed, write_speed)]
            yield Cell(f"{PACED} reads", size, 1, 0, length.paced_seconds, pauses[0], 0.3)
            yield Cell(f"{PACED} writes", size, 0, 1, length.paced_seconds, pauses[1], 0.3)
        many_seconds = length.paced_seconds / 2
        yield Cell(f"{MANY} reads", MANY_BYTES, readers=self.lanes, seconds=many_seconds)
        many = Cell(f"{MANY} writes", MANY_BYTES, 0, self.write_lanes or self.lanes, many_seconds)
        yield replace(many, write_bytes_max=_MANY_BYTES_MAX)
        pause = 1.3 * SLICE_SECONDS
        for verb, speed in ((0, read_speed), (1, write_speed)):
            name, counts = f"{TOGETHER} {('reads', 'writes')[verb]}", (1 - verb, verb)
            yield Cell(name, self._slice_bytes(speed), *counts, _TOGETHER_COUNT * pause, pause, 2 * pause)
        both = Cell(BOTH, self._slice_bytes(min(read_speed, write_speed)), 1, 1, rest_seconds=2 * pause)
        yield replace(both, pause_seconds=pause, once=True, times=_TOGETHER_COUNT)
        readers, writers = map(self._workers, self._both)
        for _ in range(length.bursts):
            yield Cell(f"{BURST} reads", self.large_bytes, readers, rest_seconds=1.0, once=True)
            yield Cell(f"{BURST} writes", self.large_bytes, 0, writers, rest_seconds=1.0, once=True)
        for depth in length.depths:
            if depth < self.lanes:
                size, readers = self._so_deep(depth)
                yield Cell(
                    f"{DEPTH} reads, {depth} in flight", size, readers, seconds=length.cell_seconds / 2
                )
        for depth in sorted({*length.depths[::2], length.depths[-1]}):
            if depth < (self.write_lanes or self.lanes):
                size, writers = self._so_deep(depth)
                deep = Cell(f"{DEPTH} writes, {depth} in flight", size, 0, writers, length.cell_seconds / 2)
                written_bytes = max(length.cell_bytes, 2 * writers * size)
                yield replace(deep, removals_max=int(depth > 1), write_bytes_max=written_bytes)
        for verb, speed in ((0, read_speed), (1, write_speed)):
            name = f"{LONG} {('read', 'written')[verb]}"
            yield Cell(name, self._long_bytes(speed), 1 - verb, verb, rest_seconds=0.3, once=True)
        yield from self._pieces()

    @property
    def parts(self) -> tuple[int, ...]:
        """How many times smaller than usual the pieces of cells are."""
        return (1, SMALLER) if self.length.piece_turns and self.piece_bytes >= SMALLER * _PIECE_MIN else (1,)

    def _pieces(self) -> Iterator[Cell]:
        """Full load with pieces of two sizes, in turn: a device that changes meanwhile changes for both."""
        readers, writers = map(self._workers, self._both)
        for _ in range(self.length.piece_turns if len(self.parts) > 1 else 0):
            for verb, counts in (("reads", (readers, 0)), ("writes", (0, writers))):
                for part in self.parts:
                    name = f"{PIECES} {size_text(self.piece_bytes // part)}: {verb}"
                    cell = self._full(name, self.large_bytes, *counts, _PIECES_SECONDS)
                    half_bytes = max(cell.write_bytes_max // 2, 2 * writers * self.large_bytes)
                    yield replace(cell, part=part, write_bytes_max=half_bytes)

    def _so_deep(self, depth: int) -> tuple[int, int]:
        """An entry, and how many of them keep so many pieces in flight.

        Long ones where they can: what lies between two entries says nothing of the device.
        """
        workers, more = divmod(depth, self.lanes_per_entry)
        return (self.piece_bytes, depth) if more or workers < 2 else (self.large_bytes, workers)

    def _slice_bytes(self, speed: float) -> int:
        """An entry that all its lanes move at once, within what a slice of a limit allows."""
        return (
            max(1, min(self.lanes_per_entry, int(SLICE_SECONDS * speed / self.piece_bytes)))
            * self.piece_bytes
        )

    def _long_bytes(self, speed: float) -> int:
        """An entry as long as runs have them, where the device is quick enough for it."""
        pieces = min(self.length.long_pieces, int(_LONG_SECONDS * speed / self.piece_bytes))
        return max(self.length.large_pieces, pieces) * self.piece_bytes
