"""Where reads of the storage end on a card: each thread has two registered buffers, filled in turn."""

import os
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from kvspill.errors import UsageError
from kvspill.machine.gpu import DeviceError
from kvspill.machine.kernel import opened_again
from kvspill.storage.base import DirectError, Expected
from kvspill.storage.fastio import check_at
from kvspill.storage.gpu.cuda import Card, Pinned
from kvspill.storage.gpu.direct import DirectFiles, open_cufile
from kvspill.storage.gpu.program import STAMP_IN_BYTES, STAMP_OUT_BYTES, Command, Program
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, blocks_of, check_stamps

SLOTS = 2
"""Buffers of a thread: one is filled while the other travels."""


class _Slot:
    """A buffer, its place on the card, and what is on its way between them."""

    __slots__ = ("begin", "buffer", "end", "expected", "last", "nbytes", "target")

    def __init__(self, card: Card, buffer: Bytes, target: int):
        self.begin, self.end, self.last = (card.new_event() for _ in range(3))
        self.buffer = buffer
        self.target = target
        self.nbytes = 0
        self.expected: Expected | None = None


class GpuBerth:
    """One thread's stream to a card."""

    def __init__(
        self, card: Card, slots: Sequence[tuple[Bytes, int]], blank: Bytes, count: Callable[[int, int], None]
    ):
        card.bind()
        self._card = card
        self.index = card.facts.index
        self._stream = card.new_stream()
        self._slots = [_Slot(card, buffer, target) for buffer, target in slots]
        self._blank = blank.ctypes.data
        """Zeros for the stamps where a piece lands, so that older ones there are not taken for its own."""
        self._turn = 0
        self._asked_ns = 0
        self._count = count
        self._failures: list[str] = []
        self.files: DirectFiles | None = None
        """Where files are read directly: by whom."""

    def memory(self) -> Bytes:
        slot = self._slots[self._turn]
        self._await(slot)
        return slot.buffer

    def send(self, memory: Bytes, expected: Expected | None) -> None:
        slot = self._slots[self._turn]
        self._await(slot)
        self._turn = (self._turn + 1) % len(self._slots)
        program = self._card.begin()
        if expected is not None:
            self._clear(program, slot, expected)
        program.add(Command.RECORD, slot.begin, self._stream)
        program.add(Command.COPY_IN, slot.target, memory.ctypes.data, memory.nbytes, self._stream)
        program.add(Command.RECORD, slot.end, self._stream)
        if expected is not None:
            self._bring_back(program, slot, expected)
        program.add(Command.RECORD, slot.last, self._stream)
        # The buffer that is needed next was sent before this one: in one go with it, waiting costs nothing.
        self._await(self._slots[self._turn], program)
        slot.nbytes, slot.expected = memory.nbytes, expected

    def arrive(self) -> list[str]:
        try:
            for slot in self._slots:
                self._await(slot)
            return self._failures
        finally:
            # What is left after an error is not the next object's.
            self._failures = []
            for slot in self._slots:
                slot.expected = None

    def read_file(self, handle: int, offset: int, nbytes: int) -> int:
        assert self.files is not None, "nothing is read directly"
        self._card.bind()
        return self.files.read(handle, self._slots[0].target, nbytes, offset)

    def wrong(self, expected: Expected) -> str | None:
        slot, program = self._slots[0], self._card.begin()
        self._bring_back(program, slot, expected)
        self._clear(program, slot, expected)
        program.add(Command.RECORD, slot.last, self._stream)
        program.add(Command.WAIT, slot.last)
        check = self._look(program, slot, expected)
        self._run(program)
        return self._verdict(program, slot, expected, check)

    def ages_ns(self, now_ns: int) -> list[int]:
        """How long the thread has been in the driver's calls; a disk that it waits for is not the card's."""
        asked_ns = self._asked_ns
        return [now_ns - asked_ns] if asked_ns else []

    def _run(self, program: Program) -> None:
        self._asked_ns = time.monotonic_ns()
        try:
            self._card.run(program)
        finally:
            self._asked_ns = 0

    def _clear(self, program: Program, slot: _Slot, expected: Expected) -> None:
        blocks = blocks_of(expected.nbytes)
        program.add(Command.STAMPS_IN, slot.target, self._blank, STAMP_IN_BYTES, blocks, self._stream)

    def _bring_back(self, program: Program, slot: _Slot, expected: Expected) -> None:
        """Copy what is to be looked at into the slot's buffer, whose bytes are on the card by then."""
        here, blocks = slot.buffer.ctypes.data, blocks_of(expected.nbytes)
        if expected.base is None:
            program.add(Command.STAMPS_OUT, here, slot.target, STAMP_OUT_BYTES, blocks, self._stream)
        else:
            program.add(Command.COPY_OUT, here, slot.target, expected.nbytes, self._stream)

    def _look(self, program: Program, slot: _Slot, expected: Expected) -> int:
        """Check the stamps that came back, for a verdict that knows the answer's number."""
        if expected.base is not None:
            return 0
        here, (_, key_hash, generation) = slot.buffer.ctypes.data, expected.identity
        first, blocks = expected.offset // BLOCK_BYTES, blocks_of(expected.nbytes)
        second = generation << 32 | first
        return program.stamps(Command.CHECK_STAMPS, here, STAMP_OUT_BYTES, blocks, key_hash, second)

    def _verdict(self, program: Program, slot: _Slot, expected: Expected, check: int) -> str | None:
        identity, offset, nbytes, base = expected
        blocks, first = blocks_of(nbytes), offset // BLOCK_BYTES
        if base is not None:
            return check_at(slot.buffer, identity, offset, nbytes, first + blocks, base)
        if not program.answer(check):
            return None
        columns = slot.buffer[: blocks * STAMP_OUT_BYTES].view(np.uint64).reshape(blocks, -1)
        return check_stamps(columns, identity, first)

    def _await(self, slot: _Slot, after: Program | None = None) -> None:
        """Wait until a slot is free, after what a program does, and look at what it brought."""
        nbytes, expected = slot.nbytes, slot.expected
        if not nbytes and after is None:
            return
        program = after or self._card.begin()
        elapsed = check = 0
        if nbytes:
            program.add(Command.WAIT, slot.last)
            elapsed = program.add(Command.ELAPSED, slot.begin, slot.end)
            check = self._look(program, slot, expected) if expected is not None else 0
        try:
            self._run(program)
        finally:
            # What failed is not waited for again: the next piece would fail for it.
            slot.nbytes, slot.expected = 0, None
        if nbytes:
            self._count(nbytes, program.answer(elapsed))
        if expected is not None:
            wrong = self._verdict(program, slot, expected, check)
            self._failures += [wrong] if wrong is not None else []


class GpuLanding:
    """Berths on all cards, handed out in turn. What lands there is not kept: a hit on storage stays there."""

    def __init__(
        self,
        pinned: Sequence[Pinned],
        count: Callable[[int, int], None],
        open_files: Callable[[str], DirectFiles] = open_cufile,
    ):
        self._pinned = pinned
        self._open_files = open_files
        self.files: DirectFiles | None = None
        """Who reads and writes files directly, where that is done."""
        self._stay_open: dict[int, int] = {}
        """Handles of files that stay open, by their descriptors."""
        self._own_fds: dict[int, int] = {}
        self._count = count
        self._local = threading.local()
        self._lock = threading.Lock()
        self._piece_bytes = BLOCK_BYTES
        self._free: list[GpuBerth] = []
        self._berths: list[GpuBerth] = []

    def reserve(self, lanes: int, piece_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        try:
            made = [self._make() for _ in range(lanes)]
        except DeviceError as error:
            raise UsageError(
                f"--load-to gpu: {lanes * SLOTS} buffers of {piece_bytes} bytes were refused ({error}); "
                "use --load-to host, fewer --io-threads or a smaller --gpu-mem-gb"
            ) from error
        with self._lock:
            self._free += reversed(made)

    def buffer(self, nbytes: int) -> Bytes:
        return self._pinned[0].new(nbytes)

    def berth(self) -> GpuBerth:
        if not hasattr(self._local, "own"):
            with self._lock:
                own = self._free.pop() if self._free else None
            self._local.own = own or self._make()
        found: GpuBerth = self._local.own
        found.files = self.files
        return found

    def ages_ns(self, now_ns: int) -> list[tuple[int, int]]:
        """The card and the age of each copy that is under way."""
        return [(berth.index, age) for berth in tuple(self._berths) for age in berth.ages_ns(now_ns)]

    @property
    def direct(self) -> bool:
        return self.files is not None

    def go_direct(self, wanted: str, fd: int) -> str:
        files = self.files or self._open_files(wanted)
        self.files = files
        try:
            handle = self.open_file(fd, stays_open=False)
            try:
                self.berth().read_file(handle, 0, BLOCK_BYTES)
            finally:
                self.close_file(handle)
        except DeviceError as error:
            self.files, words = None, files.words()
            files.close()
            raise DirectError(f"{error}{words}") from error
        return files.mode

    def open_file(self, fd: int, stays_open: bool) -> int:
        assert self.files is not None, "files are not opened directly"
        self._pinned[0].card.bind()
        if not stays_open:
            return self._open_own(self.files, fd)
        with self._lock:
            if fd not in self._stay_open:
                self._stay_open[fd] = self._open_own(self.files, fd)
            return self._stay_open[fd]

    def _open_own(self, files: DirectFiles, fd: int) -> int:
        # cuFile refuses a file that was opened with O_NOFOLLOW.
        own = opened_again(fd)
        try:
            handle = files.register(own)
        except DeviceError:
            os.close(own)
            raise
        self._own_fds[handle] = own
        return handle

    def close_file(self, handle: int) -> None:
        if self.files is not None:
            self.files.deregister(handle)
            os.close(self._own_fds.pop(handle))

    def close_files(self) -> None:
        while self._stay_open:
            self.close_file(self._stay_open.popitem()[1])

    def release(self) -> None:
        """Nothing is under way any more."""
        if self.files is not None:
            self.files.close()

    def _make(self) -> GpuBerth:
        size = self._piece_bytes
        with self._lock:
            pinned = self._pinned[len(self._berths) % len(self._pinned)]
            card = pinned.card
            memory = pinned.new(SLOTS * size + blocks_of(size) * STAMP_IN_BYTES)
            target = card.allocate(SLOTS * size)
            slots = [(memory[at : at + size], target + at) for at in range(0, SLOTS * size, size)]
            self._berths.append(GpuBerth(card, slots, memory[SLOTS * size :], self._count))
            return self._berths[-1]
