"""A list of GPU commands that are carried out in one go: by the compiled helper, or one by one in Python."""

import ctypes
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvspill.storage.compiled import compiled
from kvspill.storage.stamps import STAMP_WORDS, WORD_BYTES, Bytes, Words

_compiled = compiled("_cudarun", version=2)

COLUMNS = 11
STAMP_IN_BYTES = (STAMP_WORDS - 1) * WORD_BYTES
"""What a put writes into each block: key hash, generation and index. The base block's number is there."""
STAMP_OUT_BYTES = STAMP_WORDS * WORD_BYTES
"""What is brought back of each block: all of its stamp, of which the first two words are compared."""
_MASK = (1 << 64) - 1


class Command(IntEnum):
    """What a row of a program does; the same order as in the compiled helper."""

    BIND = 0
    RECORD = 1
    WAIT = 2
    COPY_IN = 3
    COPY_OUT = 4
    STAMPS_IN = 5
    STAMPS_OUT = 6
    LAUNCH = 7
    ELAPSED = 8
    NOW = 9
    MAKE_STAMPS = 10
    CHECK_STAMPS = 11


class Calls(Protocol):
    """The driver's calls one by one. Addresses, streams and events are plain numbers."""

    def bind(self) -> None: ...

    def record(self, event: int, stream: int) -> None: ...

    def wait(self, event: int) -> None: ...

    def elapsed_ns(self, begin: int, end: int) -> int: ...

    def copy_in(self, device: int, host: int, nbytes: int, stream: int) -> None: ...

    def copy_out(self, host: int, device: int, nbytes: int, stream: int) -> None: ...

    def stamps_in(self, device: int, host: int, blocks: int, stream: int) -> None: ...

    def stamps_out(self, host: int, device: int, blocks: int, stream: int) -> None: ...

    def launch(self, function: int, shape: Sequence[int], stream: int, arguments: Sequence[int]) -> None: ...


class Program:
    """Commands in order. An answer is read after the program has run, by the number that adding it gave."""

    __slots__ = ("_done", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self._done: npt.NDArray[np.uint64] | None = None

    def add(self, command: Command, *values: int) -> int:
        self.rows.append((command, *values, *(0,) * (COLUMNS - 1 - len(values))))
        return len(self.rows) - 1

    def answer(self, number: int) -> int:
        assert self._done is not None, "the program has not run"
        return int(self._done[number, 1])

    def stamps(
        self, command: Command, memory: int, width: int, blocks: int, key_hash: int, second: int
    ) -> int:
        """Make or check the stamps of consecutive blocks in host memory."""
        return self.add(command, memory, width, blocks, key_hash, second & _MASK)

    def run_compiled(self, functions: npt.NDArray[np.uint64]) -> tuple[int, int] | None:
        """Run it without the GIL: status and row of the last command, or None where nothing is compiled."""
        if _compiled is None:
            return None
        self._done = np.array(self.rows, dtype=np.uint64)
        ended: tuple[int, int] = _compiled.run(functions, self._done)
        return ended

    def run_in_python(self, calls: Calls) -> None:
        """Make the calls one by one; an error ends it."""
        self._done = np.array(self.rows, dtype=np.uint64)
        for number, row in enumerate(self.rows):
            answer = _call(calls, Command(row[0]), row[1:])
            if answer is not None:
                self._done[number, 1] = answer


def host_memory(address: int, nbytes: int) -> Bytes:
    """Host memory by its address."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _call(calls: Calls, command: Command, v: tuple[int, ...]) -> int | None:
    match command:
        case Command.BIND:
            calls.bind()
        case Command.RECORD:
            calls.record(v[0], v[1])
        case Command.WAIT:
            calls.wait(v[0])
        case Command.COPY_IN:
            calls.copy_in(v[0], v[1], v[2], v[3])
        case Command.COPY_OUT:
            calls.copy_out(v[0], v[1], v[2], v[3])
        case Command.STAMPS_IN:
            calls.stamps_in(v[0], v[1], v[3], v[4])
        case Command.STAMPS_OUT:
            calls.stamps_out(v[0], v[1], v[3], v[4])
        case Command.LAUNCH:
            calls.launch(v[0], v[1:4], v[4], v[5:])
        case Command.ELAPSED:
            return calls.elapsed_ns(v[0], v[1])
        case Command.NOW:
            return time.monotonic_ns()
        case _:
            return _stamps(command, v)
    return None


def _stamps(command: Command, v: tuple[int, ...]) -> int:
    address, width, blocks, key_hash, second = v[:5]
    rows: Words = host_memory(address, width * blocks).view(np.uint64).reshape(blocks, width // 8)
    seconds = np.arange(second, second + blocks, dtype=np.uint64)
    if command is Command.MAKE_STAMPS:
        rows[:, 0], rows[:, 1] = key_hash, seconds
        return 0
    return int(((rows[:, 0] != key_hash) | (rows[:, 1] != seconds)).sum())
