"""CudaCard on a stub of cuda-bindings: what it asks of the driver, in which form, and what it gives back."""

import ctypes
import sys
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvspill.machine.gpu import DeviceError
from kvspill.records import GIB
from kvspill.storage.gpu import program as program_module
from kvspill.storage.gpu.cuda import CudaCard
from kvspill.storage.gpu.kernels import Row, Table, copy_rows, take_stamps
from kvspill.storage.gpu.program import STAMP_IN_BYTES, STAMP_OUT_BYTES, Command
from kvspill.storage.stamps import BLOCK_BYTES

CONTEXT, STREAM, EVENT, KERNEL = 7, 9, 10, 20
KERNELS = [b"copy_rows", b"make_ready", b"take_stamps"]
PORTABLE, DEVICEMAP, NON_BLOCKING, BLOCKING_SYNC = 1, 2, 102, 103
MAPPED = 1 << 50


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_LAUNCH_FAILED = 719


ANSWERS: dict[str, tuple[Any, ...]] = {
    "cuDeviceGet": (5,),
    "cuDevicePrimaryCtxRetain": (CONTEXT,),
    "cuMemGetInfo": (GIB, 2 * GIB),
    "cuDriverGetVersion": (13000,),
    "cuDeviceGetName": (b"Stub\0",),
    "cuDeviceGetPCIBusId": (b"0000:00:06.0\0",),
    "cuModuleLoadData": (1,),
    "cuMemHostGetDevicePointer": (MAPPED,),
    "cuStreamCreate": (STREAM,),
    "cuEventCreate": (EVENT,),
    "cuEventElapsedTime": (1.5,),
}


class Driver:
    """A module whose functions note what they are given."""

    CUresult = Status
    CU_MEMHOSTREGISTER_PORTABLE = PORTABLE
    CU_MEMHOSTREGISTER_DEVICEMAP = DEVICEMAP
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=NON_BLOCKING)
    CUevent_flags = SimpleNamespace(CU_EVENT_BLOCKING_SYNC=BLOCKING_SYNC)
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_HOST=1, CU_MEMORYTYPE_DEVICE=2)
    CUDA_MEMCPY2D = SimpleNamespace

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []
        self.fails: dict[str, Status] = {}
        self.proc_addresses: dict[bytes, int] = {}

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*given: Any) -> tuple[Any, ...]:
            self.called.append((name, *given))
            return self.fails.get(name, Status.CUDA_SUCCESS), *self._values(name, *given)

        return function

    def _values(self, name: str, *given: Any) -> tuple[Any, ...]:
        match name:
            case "cuMemAlloc":
                return ([call[0] for call in self.called].count(name) << 40,)
            case "cuModuleGetFunction":
                return (KERNELS.index(given[1]) + KERNEL,)
            case "cuGetProcAddress":
                return self.proc_addresses.get(given[0], 1), 0
            case _:
                return ANSWERS.get(name, ())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    stub, bindings = Driver(), ModuleType("cuda.bindings")
    vars(bindings)["driver"] = stub
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    return stub


@pytest.fixture
def card(driver: Driver) -> CudaCard:
    made = CudaCard(5)
    driver.called.clear()
    return made


def test_every_allocation_is_freed_once_and_the_context_released_once(driver: Driver, card: CudaCard) -> None:
    addresses = [card.allocate(nbytes) for nbytes in (4096, 8192, 3)]
    driver.called.clear()
    card.close()
    card.close()
    freed = [call for call in driver.called if call[0] != "cuCtxSetCurrent"]
    assert freed == [*(("cuMemFree", address) for address in addresses), ("cuDevicePrimaryCtxRelease", 5)]


def test_a_free_that_fails_is_an_error_and_the_context_is_released(driver: Driver, card: CudaCard) -> None:
    card.allocate(4096)
    driver.fails["cuMemFree"] = Status.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(DeviceError, match=r"^cuMemFree: CUDA_ERROR_LAUNCH_FAILED$"):
        card.close()
    assert driver.called[-1] == ("cuDevicePrimaryCtxRelease", 5)


def test_an_allocation_that_fails_is_an_error_and_not_freed(driver: Driver, card: CudaCard) -> None:
    driver.fails["cuMemAlloc"] = Status.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError, match=r"^cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY$"):
        card.allocate(4096)
    card.close()
    assert "cuMemFree" not in [call[0] for call in driver.called]


def test_events_wait_without_spinning_streams_do_not_wait_for_others_and_memory_is_for_every_card(
    driver: Driver, card: CudaCard
) -> None:
    memory = np.zeros(4096, dtype=np.uint8)
    assert (card.new_event(), card.new_stream()) == (EVENT, STREAM)
    card.register(memory)
    assert card.mapped(memory) == MAPPED
    card.unregister(memory)
    assert driver.called == [
        ("cuEventCreate", BLOCKING_SYNC),
        ("cuStreamCreate", NON_BLOCKING),
        ("cuMemHostRegister", memory.ctypes.data, 4096, PORTABLE | DEVICEMAP),
        ("cuMemHostGetDevicePointer", memory.ctypes.data, 0),
        ("cuMemHostUnregister", memory.ctypes.data),
    ]


@pytest.mark.parametrize(("rows", "wide"), [(1, 1024), (2, 512), (16, 64), (300, 64), (512, 64)])
def test_a_launch_has_a_line_of_blocks_for_each_row_and_enough_of_them_in_all(
    driver: Driver, card: CudaCard, monkeypatch: pytest.MonkeyPatch, rows: int, wide: int
) -> None:
    program, blank = card.begin(), 700
    table = Table(np.zeros(rows * 24, dtype=np.uint8), MAPPED, 1 << 40)
    parts = [Row(index, index + 1, 16) for index in range(rows)]
    copy_rows(card, program, parts, table, blank, EVENT, STREAM)
    take_stamps(card, program, MAPPED + 3, 1 << 41, blank, STREAM)
    ready = -(-max(3 * rows, blank) // 256), 1, 256, STREAM, MAPPED, 1 << 40, 3 * rows, 1, blank
    launches = [
        (Command.LAUNCH, KERNEL + 1, *ready),
        (Command.LAUNCH, KERNEL, wide, rows, 256, STREAM, 1 << 40, 0, 0, 0, 0),
        (Command.LAUNCH, KERNEL + 2, 9, 1, 256, STREAM, MAPPED + 3, 1 << 41, 2100, 0, 0),
    ]
    assert [row for row in program.rows if row[0] == Command.LAUNCH] == launches
    # The copies alone lie behind the event that marks their begin.
    assert program.rows[2][:3] == (Command.RECORD, EVENT, STREAM)
    assert table.host.view(np.uint64).tolist() == [
        number for index in range(rows) for number in (index, index + 1, 16)
    ]
    # Without the compiled helper the same calls are made one by one.
    monkeypatch.setattr(program_module, "_compiled", None)
    card.run(program)
    assert driver.called[:1] == [("cuCtxSetCurrent", CONTEXT)]
    assert driver.called[2] == ("cuEventRecord", EVENT, STREAM)
    made = [call for call in driver.called if call[0] == "cuLaunchKernel"]
    for call, (_, kernel, width, lines, threads, stream, *_) in zip(made, launches, strict=True):
        assert call[1:10] == (kernel, width, lines, 1, threads, 1, 1, 0, stream)


def test_a_kernel_is_given_its_arguments_by_their_addresses(driver: Driver, card: CudaCard) -> None:
    given: list[int] = []

    def launch(*call: Any) -> tuple[Status]:
        # They are valid during the call alone.
        pointers = (ctypes.POINTER(ctypes.c_uint64) * 3).from_address(call[9])
        given.extend(pointer[0] for pointer in pointers)
        return (Status.CUDA_SUCCESS,)

    vars(driver)["cuLaunchKernel"] = launch
    card.launch(KERNEL, (1, 1, 256), STREAM, (1 << 63, 5, 6))
    assert given == [1 << 63, 5, 6]


def test_stamps_are_copied_with_the_pitch_of_a_block_on_the_card(driver: Driver, card: CudaCard) -> None:
    card.stamps_in(1, 2, 3, STREAM)
    card.stamps_out(4, 5, 6, STREAM)
    there = SimpleNamespace(srcMemoryType=1, srcHost=2, srcPitch=STAMP_IN_BYTES)
    vars(there).update(dstMemoryType=2, dstDevice=1, dstPitch=BLOCK_BYTES)
    vars(there).update(WidthInBytes=STAMP_IN_BYTES, Height=3)
    back = SimpleNamespace(srcMemoryType=2, srcDevice=5, srcPitch=BLOCK_BYTES)
    vars(back).update(dstMemoryType=1, dstHost=4, dstPitch=STAMP_OUT_BYTES)
    vars(back).update(WidthInBytes=STAMP_OUT_BYTES, Height=6)
    assert driver.called == [("cuMemcpy2DAsync", there, STREAM), ("cuMemcpy2DAsync", back, STREAM)]


CALLS: dict[str, Callable[[CudaCard], object]] = {
    "cuCtxSetCurrent": lambda card: card.bind(),
    "cuCtxSynchronize": lambda card: card.synchronize(),
    "cuEventRecord": lambda card: card.record(1, 2),
    "cuEventSynchronize": lambda card: card.wait(1),
    "cuEventElapsedTime": lambda card: card.elapsed_ns(1, 2),
    "cuMemcpyHtoDAsync": lambda card: card.copy_in(1, 2, 3, 4),
    "cuMemcpyDtoHAsync": lambda card: card.copy_out(1, 2, 3, 4),
    "cuLaunchKernel": lambda card: card.launch(1, (1, 1, 1), 2, (3,)),
    "cuMemHostRegister": lambda card: card.register(np.zeros(1, dtype=np.uint8)),
    "cuMemHostUnregister": lambda card: card.unregister(np.zeros(1, dtype=np.uint8)),
    "cuStreamCreate": lambda card: card.new_stream(),
    "cuEventCreate": lambda card: card.new_event(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fails_is_an_error_by_the_drivers_name(driver: Driver, card: CudaCard, name: str) -> None:
    CALLS[name](card)
    driver.fails[name] = Status.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(DeviceError, match=f"^{name}: CUDA_ERROR_LAUNCH_FAILED$") as caught:
        CALLS[name](card)
    assert caught.value.kind == "CUDA_ERROR_LAUNCH_FAILED"


def test_stamps_that_are_not_copied_are_an_error(driver: Driver, card: CudaCard) -> None:
    driver.fails["cuMemcpy2DAsync"] = Status.CUDA_ERROR_LAUNCH_FAILED
    for copy in (card.stamps_in, card.stamps_out):
        with pytest.raises(DeviceError, match=r"^cuMemcpy2DAsync: CUDA_ERROR_LAUNCH_FAILED$"):
            copy(1, 2, 3, STREAM)


def test_an_elapsed_time_is_in_nanoseconds(driver: Driver, card: CudaCard) -> None:
    assert card.elapsed_ns(21, 22) == 1_500_000
    assert driver.called == [("cuEventElapsedTime", 21, 22)]


def test_a_compiled_program_that_fails_is_an_error_by_the_name_of_the_call(driver: Driver) -> None:
    pytest.importorskip("kvspill.storage._cudarun", reason="the compiled helper was not built")
    waited: list[int] = []
    status = 0

    def synchronize(event: int) -> int:
        waited.append(event)
        return status

    bind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)(lambda _context: 0)
    wait = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)(synchronize)
    for name, function in ((b"cuCtxSetCurrent", bind), (b"cuEventSynchronize", wait)):
        driver.proc_addresses[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    card = CudaCard(5)
    program = card.begin()
    for event in (31, 32):
        program.add(Command.WAIT, event)
    card.run(program)
    assert waited == [31, 32]
    status = Status.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(DeviceError, match=r"^cuEventSynchronize: CUDA_ERROR_LAUNCH_FAILED$"):
        card.run(program)
    assert waited == [31, 32, 31]
