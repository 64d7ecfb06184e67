"""Timed transfers of an entry's pieces: by the compiled helper where it was built, else in Python."""

import errno
import os
import threading
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from kvspill.storage.base import Source
from kvspill.storage.compiled import compiled
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, Identity, Verify, block_padded, blocks_of, check, stamp

_compiled = compiled("_fastio", version=2)

COMPILED = _compiled is not None
"""False where the time after a system call includes the wait for the GIL (E1)."""


class Status(IntEnum):
    """Why a transfer returned."""

    EXHAUSTED = 0
    """No piece is left to take, or the span was stopped."""
    MORE = 1
    """As many pieces were moved as asked; the piece is the last of them."""
    FAILED = 2
    """The system call failed; the value is the errno."""
    SHORT = 3
    MISMATCH = 4
    """The piece was read, but what memory now holds is not what was written."""


Answer = tuple[int, int, int]
"""Status, piece, value."""

BUSY_MAX = 100
"""How often a kernel that is busy (EAGAIN) is asked again; as in the compiled helper."""
_BUSY_NAP_SECONDS = 0.001

NOTHING = np.empty(0, dtype=np.uint8)
CONTIGUOUS: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
"""Places of pieces that lie one behind the other from the beginning of their file."""


class Span:
    """What the lanes of one entry share: its shape, the next piece to take, and a log row per piece."""

    __slots__ = (
        *("checked_blocks", "identity", "lock", "log", "piece_bytes", "piece_count", "places"),
        "total_bytes",
    )

    def __init__(self, identity: Identity, nbytes: int, total_bytes: int, piece_bytes: int):
        self.identity = identity
        self.total_bytes = total_bytes
        self.piece_bytes = piece_bytes
        self.piece_count = -(-total_bytes // piece_bytes)
        self.checked_blocks = blocks_of(nbytes)
        self.log: npt.NDArray[np.int64] = np.zeros((self.piece_count + 1, 3), dtype=np.int64)
        """Row 0: next piece, stop flag, resumed calls. Row i + 1: start_ns, end_ns and bytes of piece i;
        while it is in flight only the start is there."""
        self.places = CONTIGUOUS
        """Where each piece lies in the file, as offsets."""
        self.lock = threading.Lock()

    def stop(self) -> None:
        """Lanes finish the piece they are at and take no other."""
        self.log[0, 1] = 1

    def take(self) -> int | None:
        """The next piece for a lane that moves it itself."""
        return next(iter(self.take_some(1)), None)

    def take_some(self, count: int) -> range:
        """The next pieces, at most so many, for a lane that moves them in one go."""
        with self.lock:
            piece = int(self.log[0, 0])
            if self.log[0, 1] or piece >= self.piece_count:
                return range(0)
            taken = range(piece, min(piece + count, self.piece_count))
            self.log[0, 0] = taken.stop
            return taken

    def in_flight_ns(self) -> list[int]:
        """When each piece that is under way began."""
        rows = self.log[1:]
        return [int(start_ns) for start_ns in rows[(rows[:, 0] > 0) & (rows[:, 2] == 0), 0]]

    def begin(self, piece: int) -> int:
        """Note that a piece is about to be moved."""
        self.log[piece + 1, 0] = start_ns = time.monotonic_ns()
        return start_ns

    def note(self, piece: int, start_ns: int, end_ns: int, nbytes: int) -> None:
        self.log[piece + 1] = (start_ns, end_ns, nbytes)

    @property
    def resumed_calls(self) -> int:
        """Calls that moved less than was asked, or found the kernel busy, and were followed by another."""
        return int(self.log[0, 2])

    def count_resumed(self) -> None:
        with self.lock:
            self.log[0, 2] += 1

    def place(self, piece: int) -> int:
        """Where a piece begins in the file."""
        return int(self.places[piece]) if len(self.places) else piece * self.piece_bytes

    def extent(self, piece: int) -> tuple[int, int]:
        """Offset in the object and length of a piece."""
        offset = piece * self.piece_bytes
        return offset, min(self.piece_bytes, self.total_bytes - offset)

    def checked_bytes(self, piece: int) -> int:
        """Bytes of a piece that verification looks at: the padding after the last block may be anything."""
        offset, nbytes = self.extent(piece)
        return max(0, min(nbytes, self.checked_blocks * BLOCK_BYTES - offset))


def transfer(
    fd: int, write: bool, memory: Bytes, span: Span, verify: Verify, base: Bytes, max_pieces: int = 0
) -> Answer:
    """Move pieces between memory and the file until none is left, one fails or max_pieces are done."""
    if _compiled is None:
        return _transfer_in_python(fd, write, memory, span, verify, base, max_pieces)
    answer: Answer = _compiled.transfer(
        fd,
        write,
        memory,
        span.log,
        span.places,
        span.piece_bytes,
        span.total_bytes,
        span.checked_blocks,
        span.identity.key_hash,
        span.identity.generation,
        verify,
        base if verify is Verify.FULL else NOTHING,
        max_pieces,
    )
    return answer


def _transfer_in_python(
    fd: int, write: bool, memory: Bytes, span: Span, verify: Verify, base: Bytes, max_pieces: int
) -> Answer:
    done, last = 0, -1
    while max_pieces <= 0 or done < max_pieces:
        piece = span.take()
        if piece is None:
            return Status.EXHAUSTED, -1, 0
        offset, nbytes = span.extent(piece)
        if write:
            stamp(memory, span.identity, offset, nbytes)
        start_ns = span.begin(piece)
        moved = _call(fd, write, memory[:nbytes], span, piece)
        end_ns = time.monotonic_ns()
        if moved < 0:
            return Status.FAILED, piece, -moved
        if moved < nbytes:
            return Status.SHORT, piece, moved
        span.note(piece, start_ns, end_ns, nbytes)
        if not write and check_piece(memory, span, piece, verify, base) is not None:
            return Status.MISMATCH, piece, 0
        done, last = done + 1, piece
    return Status.MORE, last, 0


def _call(fd: int, write: bool, memory: Bytes, span: Span, piece: int) -> int:
    """Move a piece as the compiled helper does; bytes moved or a negative errno."""
    move = os.pwritev if write else os.preadv
    offset, moved, busy = span.place(piece), 0, 0
    while moved < len(memory):
        buffers: Sequence[Any] = [memory[moved:]]
        try:
            n = move(fd, buffers, offset + moved)
        except OSError as error:
            busy += 1
            answer = _after_error(error.errno or errno.EIO, moved, busy)
            if answer is not None:
                return answer
        else:
            if n == 0:
                break
            moved += n
        if moved < len(memory):
            span.count_resumed()
    return moved


def _after_error(number: int, moved: int, busy: int) -> int | None:
    """How a call that failed ends its piece, or None where it is to be made again."""
    if number == errno.EINVAL and moved:
        # Direct I/O stopped between two blocks, as at the end of a file: it can't be resumed there.
        return moved
    if number != errno.EAGAIN or busy >= BUSY_MAX:
        return -number
    time.sleep(_BUSY_NAP_SECONDS)
    return None


def transfer_lent(fd: int, source: Source, span: Span) -> Answer:
    """Write pieces straight from the memory that a source lends (E5), until none is left or one fails."""
    while (piece := span.take()) is not None:
        offset, nbytes = span.extent(piece)
        buffers, there = source.buffers(offset, nbytes), span.place(piece)
        start_ns = end_ns = span.begin(piece)
        moved = busy = 0
        while moved < nbytes:
            n, called_ns, end_ns = pwritev_timed(fd, rest_of(buffers, moved), there + moved)
            start_ns = start_ns if moved or busy else called_ns
            if n == 0:
                break
            if n < 0:
                busy += 1
                answer = _after_error(-n, moved, busy)
                if answer is not None and answer < 0:
                    return Status.FAILED, piece, -answer
                if answer is not None:
                    break
            moved += max(0, n)
            if moved < nbytes:
                span.count_resumed()
        if moved < nbytes:
            return Status.SHORT, piece, moved
        span.note(piece, start_ns, end_ns, nbytes)
        # Given back before the next are asked for, so that a lane needs no second one.
        buffers = ()
    return Status.EXHAUSTED, -1, 0


def rest_of(buffers: Sequence[Any], moved: int) -> Sequence[Any]:
    """What is left of buffers after their first bytes were moved."""
    if moved == 0:
        return buffers
    rest = []
    for buffer in buffers:
        view = np.frombuffer(buffer, dtype=np.uint8)
        if moved < len(view):
            rest.append(view[moved:])
        moved = max(0, moved - len(view))
    return rest


def exchange(write: bool, memory: Bytes, there: Source, span: Span, verify: Verify, base: Bytes) -> Answer:
    """Copy pieces between memory and an object's own pages, as transfer does with a file.

    Memory that is written from may hold several pieces: each takes the next one, then the first again.
    """
    samples = max(1, len(memory) // span.piece_bytes)
    while (piece := span.take()) is not None:
        offset, nbytes = span.extent(piece)
        sample = piece % samples * span.piece_bytes if write else 0
        start_ns, at = span.begin(piece), 0
        for part in there.buffers(offset, nbytes):
            ours = memory[sample + at : sample + at + len(part)]
            np.copyto(*((part, ours) if write else (ours, part)))
            at += len(part)
        span.note(piece, start_ns, time.monotonic_ns(), nbytes)
        if write:
            for part in there.buffers(offset, block_padded(nbytes)):
                stamp(part, span.identity, offset, len(part))
                offset += len(part)
        elif check_piece(memory, span, piece, verify, base) is not None:
            return Status.MISMATCH, piece, 0
    return Status.EXHAUSTED, -1, 0


def check_piece(memory: Bytes, span: Span, piece: int, verify: Verify, base: Bytes) -> str | None:
    """How the piece that memory holds fails verification, or None."""
    if verify is Verify.OFF:
        return None
    offset, _ = span.extent(piece)
    pristine = base if verify is Verify.FULL else None
    return check_at(memory, span.identity, offset, span.checked_bytes(piece), span.checked_blocks, pristine)


def check_at(
    memory: Bytes, identity: Identity, offset: int, nbytes: int, checked_blocks: int, base: Bytes | None
) -> str | None:
    """How memory fails to hold an object's bytes at offset, or None; with a base, every byte is compared."""
    if _compiled is not None:
        shape = offset, nbytes, checked_blocks, identity.key_hash, identity.generation
        verify, reference = (Verify.STAMP, NOTHING) if base is None else (Verify.FULL, base)
        if _compiled.holds(memory, *shape, verify, reference):
            return None
    return check(memory, identity, offset, nbytes, base)


def pwritev_timed(fd: int, buffers: Sequence[Any], offset: int) -> tuple[int, int, int]:
    """Write buffers at offset: (bytes or negative errno, start_ns, end_ns)."""
    if _compiled is not None:
        timed: tuple[int, int, int] = _compiled.pwritev_timed(fd, buffers, offset)
        return timed
    start_ns = time.monotonic_ns()
    try:
        moved = os.pwritev(fd, buffers, offset)
    except OSError as error:
        moved = -(error.errno or errno.EIO)
    return moved, start_ns, time.monotonic_ns()
