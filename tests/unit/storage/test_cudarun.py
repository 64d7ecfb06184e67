"""The compiled helper that runs GPU programs, on functions of ours: order, arguments, failures."""

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kvspill.storage.gpu.program import COLUMNS, STAMP_IN_BYTES, STAMP_OUT_BYTES, Command, Program
from kvspill.storage.stamps import BLOCK_BYTES

_cudarun = pytest.importorskip("kvspill.storage._cudarun", reason="the compiled helper was not built")

NUMBER = ctypes.c_uint64
HOST, DEVICE = 1, 2


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D as cuda.h has it."""

    _fields_ = (
        *(("src_x", ctypes.c_size_t), ("src_y", ctypes.c_size_t), ("src_type", ctypes.c_int)),
        *(("src_host", NUMBER), ("src_device", NUMBER), ("src_array", NUMBER), ("src_pitch", NUMBER)),
        *(("dst_x", ctypes.c_size_t), ("dst_y", ctypes.c_size_t), ("dst_type", ctypes.c_int)),
        *(("dst_host", NUMBER), ("dst_device", NUMBER), ("dst_array", NUMBER), ("dst_pitch", NUMBER)),
        *(("width", ctypes.c_size_t), ("height", ctypes.c_size_t)),
    )


_COPY_2D = ctypes.POINTER(Copy2D), NUMBER
_SHAPE = (ctypes.c_uint,) * 7
SIGNATURES: dict[Command, tuple[Any, ...]] = {
    Command.BIND: (NUMBER,),
    Command.RECORD: (NUMBER, NUMBER),
    Command.WAIT: (NUMBER,),
    Command.COPY_IN: (NUMBER, NUMBER, ctypes.c_size_t, NUMBER),
    Command.COPY_OUT: (NUMBER, NUMBER, ctypes.c_size_t, NUMBER),
    Command.STAMPS_IN: _COPY_2D,
    Command.STAMPS_OUT: _COPY_2D,
    Command.LAUNCH: (NUMBER, *_SHAPE, NUMBER, ctypes.POINTER(ctypes.POINTER(NUMBER)), NUMBER),
    Command.ELAPSED: (ctypes.POINTER(ctypes.c_float), NUMBER, NUMBER),
}
"""The driver's functions, with addresses, streams and events as plain numbers."""


class Driver:
    """Functions that note how they were called."""

    def __init__(self, **fails: int):
        self.called: list[tuple[Any, ...]] = []
        self.elapsed_ms = 0.0
        self._fails = fails
        self._kept = {command: self._function(command) for command in SIGNATURES}

    def _function(self, command: Command) -> Any:
        note: Callable[..., tuple[Any, ...]] = getattr(self, f"_{command.name.lower()}", lambda *given: given)

        def called(*given: Any) -> int:
            self.called.append((command, *note(*given)))
            return self._fails.get(command.name, 0)

        return ctypes.CFUNCTYPE(ctypes.c_int, *SIGNATURES[command])(called)

    def _stamps_in(self, copy: Any, stream: int) -> tuple[Any, ...]:
        fields = {name: getattr(copy[0], name) for name, _ in Copy2D._fields_}
        return {name: value for name, value in fields.items() if value}, stream

    _stamps_out = _stamps_in

    def _launch(self, *given: Any) -> tuple[Any, ...]:
        # The arguments are valid during the call alone.
        return (*given[:9], *(given[9][place][0] for place in range(5)), given[10])

    def _elapsed(self, answer: Any, begin: int, end: int) -> tuple[int, int]:
        answer[0] = self.elapsed_ms
        return begin, end

    def run(self, program: Program) -> tuple[int, int]:
        answer = program.run_compiled(self.functions())
        assert answer is not None, "built from other sources"
        return answer

    def functions(self) -> npt.NDArray[np.uint64]:
        table = np.zeros(len(Command), dtype=np.uint64)
        for command, function in self._kept.items():
            table[command] = ctypes.cast(function, ctypes.c_void_p).value or 0
        return table


def test_every_call_is_made_in_order_with_its_arguments() -> None:
    driver, program, high = Driver(), Program(), 1 << 47
    program.add(Command.BIND, high)
    program.add(Command.COPY_IN, high + 1, high + 2, 5 << 32, 31)
    program.add(Command.COPY_OUT, high + 3, high + 4, 6 << 32, 32)
    program.add(Command.RECORD, 21, 33)
    program.add(Command.STAMPS_IN, high + 5, high + 6, STAMP_IN_BYTES, 70_000, 34)
    program.add(Command.STAMPS_OUT, high + 7, high + 8, STAMP_OUT_BYTES, 80_000, 35)
    program.add(Command.LAUNCH, high + 9, 64, 512, 256, 36, high + 10, 11, 12, 13, high + 14)
    program.add(Command.WAIT, 22)
    assert driver.run(program) == (0, len(program.rows) - 1)
    stamps_in = {"src_type": HOST, "src_host": high + 6, "src_pitch": STAMP_IN_BYTES, "dst_type": DEVICE}
    stamps_in |= {"dst_device": high + 5, "dst_pitch": BLOCK_BYTES, "width": STAMP_IN_BYTES, "height": 70_000}
    stamps_out = {"src_type": DEVICE, "src_device": high + 8, "src_pitch": BLOCK_BYTES, "dst_type": HOST}
    stamps_out |= {"dst_host": high + 7, "dst_pitch": STAMP_OUT_BYTES}
    stamps_out |= {"width": STAMP_OUT_BYTES, "height": 80_000}
    assert driver.called == [
        (Command.BIND, high),
        (Command.COPY_IN, high + 1, high + 2, 5 << 32, 31),
        (Command.COPY_OUT, high + 3, high + 4, 6 << 32, 32),
        (Command.RECORD, 21, 33),
        (Command.STAMPS_IN, stamps_in, 34),
        (Command.STAMPS_OUT, stamps_out, 35),
        (Command.LAUNCH, high + 9, 64, 512, 1, 256, 1, 1, 0, 36, high + 10, 11, 12, 13, high + 14, 0),
        (Command.WAIT, 22),
    ]


@pytest.mark.parametrize("failing", SIGNATURES)
def test_a_call_that_fails_ends_the_program_with_its_status_and_row(failing: Command) -> None:
    driver, program = Driver(**{failing.name: 719}), Program()
    order = [command for command in SIGNATURES if command is not failing]
    for command in (*order, failing, *order):
        program.add(command, 1, 2, 3, 4, 5, 6)
    assert driver.run(program) == (719, len(order))
    assert [call[0] for call in driver.called] == [*order, failing]


def test_an_elapsed_time_is_in_nanoseconds_and_now_is_the_clock_of_the_program() -> None:
    driver, program = Driver(), Program()
    driver.elapsed_ms = 1.5
    took = program.add(Command.ELAPSED, 41, 42)
    now = program.add(Command.NOW)
    before_ns = time.monotonic_ns()
    assert driver.run(program) == (0, 1)
    assert driver.called == [(Command.ELAPSED, 41, 42)]
    assert program.answer(took) == 1_500_000
    assert before_ns <= program.answer(now) <= time.monotonic_ns()


@pytest.mark.parametrize("width", [STAMP_IN_BYTES, STAMP_OUT_BYTES])
def test_stamps_are_made_and_checked_as_python_does(width: int) -> None:
    blocks, key_hash, second = 9, (1 << 64) - 3, 7 << 32 | 5
    memory = np.full((blocks, width // 8), 77, dtype=np.uint64)
    program = Program()
    made = memory.ctypes.data, width, blocks, key_hash, second
    program.stamps(Command.MAKE_STAMPS, *made)
    checks = [program.stamps(Command.CHECK_STAMPS, *made)]
    checks.append(program.stamps(Command.CHECK_STAMPS, *made[:3], key_hash - 1, second))
    checks.append(program.stamps(Command.CHECK_STAMPS, *made[:3], key_hash, second + 1))
    assert Driver().run(program) == (0, 3)
    assert [program.answer(check) for check in checks] == [0, blocks, blocks]
    assert memory[:, 0].tolist() == [key_hash] * blocks
    assert memory[:, 1].tolist() == [second + index for index in range(blocks)]
    assert (memory[:, 2:] == 77).all()
    memory[3, 0] = memory[8, 1] = 0
    again = Program()
    check = again.stamps(Command.CHECK_STAMPS, *made)
    Driver().run(again)
    assert again.answer(check) == 2


def test_a_program_of_unknown_commands_or_of_a_broken_row_calls_nothing() -> None:
    driver = Driver()
    good = [Command.WAIT, 1, *(0,) * (COLUMNS - 2)]
    for rows in ([good, [len(Command), *good[1:]]], [good[:-1]]):
        with pytest.raises(ValueError, match="not a program"):
            _cudarun.run(driver.functions(), np.array(rows, dtype=np.uint64))
    with pytest.raises(ValueError, match="not a program"):
        _cudarun.run(driver.functions()[:-1], np.array([good], dtype=np.uint64))
    assert not driver.called
