"""An object in device memory lent for a write below: copied out straight to where it is needed."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kvspill.storage.arena import Run
from kvspill.storage.gpu.cuda import Pinned
from kvspill.storage.gpu.landing import GpuLanding
from kvspill.storage.gpu.program import Command
from kvspill.storage.stamps import BLOCK_BYTES, Bytes


class Stretch(NamedTuple):
    """Bytes of an object that lie together in device memory."""

    address: int
    offset: int
    nbytes: int


def stretches(base: int, runs: Sequence[Run], offset: int = 0) -> tuple[Stretch, ...]:
    """Where an object's bytes from an offset on lie that have these runs of blocks."""
    found = []
    for start, end in runs:
        nbytes = (end - start) * BLOCK_BYTES
        found.append(Stretch(base + start * BLOCK_BYTES, offset, nbytes))
        offset += nbytes
    return tuple(found)


def part_of(whole: Sequence[Stretch], offset: int, nbytes: int) -> list[Stretch]:
    """Where [offset, offset + nbytes) of an object lies."""
    found = []
    for stretch in whole:
        begin, end = max(offset, stretch.offset), min(offset + nbytes, stretch.offset + stretch.nbytes)
        if begin < end:
            found.append(Stretch(stretch.address + begin - stretch.offset, begin, end - begin))
    return found


class Ferry:
    """Copies out of one card for any thread: each has a stream of its own, so that copies overlap."""

    def __init__(self, pinned: Pinned, count: Callable[[int, int], None]):
        self._pinned = pinned
        self._card = pinned.card
        self._count = count
        self._local = threading.local()
        self._buffers: deque[Bytes] = deque()
        self._began_ns: dict[int, int] = {}
        """When the demotion of a thread began."""

    def demote(self, parts: Sequence[Stretch], targets: Sequence[Bytes]) -> None:
        """Copy parts of an object out for the tier below."""
        self._began_ns[threading.get_ident()] = time.monotonic_ns()
        try:
            self._count(*self.copy_out(parts, targets))
        finally:
            del self._began_ns[threading.get_ident()]

    def ages_ns(self, now_ns: int) -> list[int]:
        """How long each demotion has been under way."""
        return [now_ns - began_ns for began_ns in tuple(self._began_ns.values())]

    def copy_out(self, parts: Sequence[Stretch], targets: Sequence[Bytes]) -> tuple[int, int]:
        """Copy device memory into host memory, one part behind the other; returns bytes and device time."""
        stream, begin, end = self._mine()
        program = self._card.begin()
        program.add(Command.RECORD, begin, stream)
        room = iter(targets)
        target, at, moved = next(room), 0, 0
        for part in parts:
            done = 0
            while done < part.nbytes:
                if at == len(target):
                    target, at = next(room), 0
                length = min(part.nbytes - done, len(target) - at)
                program.add(Command.COPY_OUT, target.ctypes.data + at, part.address + done, length, stream)
                done, at, moved = done + length, at + length, moved + length
        program.add(Command.RECORD, end, stream)
        program.add(Command.WAIT, end)
        elapsed = program.add(Command.ELAPSED, begin, end)
        self._card.run(program)
        return moved, program.answer(elapsed)

    def buffer(self, nbytes: int) -> Bytes:
        """Registered memory that is used again when the caller has let go of it."""
        try:
            whole = self._buffers.popleft()
        except IndexError:
            whole = self._pinned.new(nbytes)
        if len(whole) < nbytes:
            self._pinned.give_up(whole)
            whole = self._pinned.new(nbytes)
        lent = whole[:nbytes]
        weakref.finalize(lent, self._buffers.append, whole)
        return lent

    def reserve(self, count: int, nbytes: int) -> None:
        """Have so many buffers ready before the load."""
        self._buffers += [self._pinned.new(nbytes) for _ in range(count)]

    def bind(self) -> None:
        """Let the calling thread use the card."""
        self._card.bind()

    def _mine(self) -> tuple[int, int, int]:
        """The calling thread's stream and events."""
        if not hasattr(self._local, "own"):
            self._card.bind()
            self._local.own = self._card.new_stream(), self._card.new_event(), self._card.new_event()
        own: tuple[int, int, int] = self._local.own
        return own


class GpuSource:
    """An object in device memory (E5), for a write below that takes it from here."""

    __slots__ = ("_landing", "_shares")
    pieces_at_once = 32
    """A copy of many pieces is one wait, and the link needs no second lane."""

    def __init__(self, landing: GpuLanding, shares: Sequence[tuple[Ferry, Sequence[Stretch]]]):
        self._landing = landing
        self._shares = shares
        """What lies of the object on each card."""

    def buffers(self, offset: int, nbytes: int) -> Sequence[Bytes]:
        target = self._shares[0][0].buffer(nbytes)
        self.copy(offset, [target])
        return (target,)

    def copy(self, offset: int, targets: Sequence[Bytes]) -> None:
        nbytes = sum(len(target) for target in targets)
        for ferry, parts in self._parts(offset, nbytes):
            here = sum(part.nbytes for part in parts)
            ferry.demote(parts, _cut(targets, parts[0].offset - offset, here))

    def write_file(self, handle: int, place: int, offset: int, nbytes: int) -> int:
        files, moved = self._landing.files, 0
        assert files is not None, "nothing is written directly"
        for ferry, parts in self._parts(offset, nbytes):
            ferry.bind()
            for part in parts:
                sent = files.write(handle, part.address, part.nbytes, place + part.offset - offset)
                moved += sent
                if sent < part.nbytes:
                    return moved
        return moved

    def _parts(self, offset: int, nbytes: int) -> Iterator[tuple[Ferry, list[Stretch]]]:
        """Where these bytes of the object lie, card by card."""
        for ferry, whole in self._shares:
            if parts := part_of(whole, offset, nbytes):
                yield ferry, parts


def _cut(targets: Sequence[Bytes], skipped: int, nbytes: int) -> list[Bytes]:
    """The parts of targets that hold so many bytes behind those that are skipped."""
    found = []
    for target in targets:
        part = target[min(skipped, len(target)) : min(skipped + nbytes, len(target))]
        if len(part):
            found.append(part)
        skipped, nbytes = max(0, skipped - len(target)), nbytes - len(part)
    return found
