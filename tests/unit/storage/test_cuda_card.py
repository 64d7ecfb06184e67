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
from kvspill.storage.gpu.cuda import CudaCard, Row, Table, copy_rows
from kvspill.storage.gpu.program import STAMP_IN_BYTES, STAMP_OUT_BYTES, Command
from kvspill.storage.stamps import BLOCK_BYTES

CONTEXT, KERNEL, STREAM, EVENT = 7, 8, 9, 10
PORTABLE, NON_BLOCKING, BLOCKING_SYNC = 101, 102, 103


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
    "cuModuleGetFunction": (KERNEL,),
    "cuStreamCreate": (STREAM,),
    "cuEventCreate": (EVENT,),
    "cuEventElapsedTime": (1.5,),
}


class Driver:
    """A module whose functions note what they are given."""

    CUresult = Status
    CU_MEMHOSTREGISTER_PORTABLE = PORTABLE
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
    card.unregister(memory)
    assert driver.called == [
        ("cuEventCreate", BLOCKING_SYNC),
        ("cuStreamCreate", NON_BLOCKING),
        ("cuMemHostRegister", memory.ctypes.data, 4096, PORTABLE),
        ("cuMemHostUnregister", memory.ctypes.data),
    ]


@pytest.mark.parametrize(("rows", "wide"), [(1, 1024), (2, 512), (16, 64), (300, 64), (512, 64)])
def test_a_launch_has_a_line_of_blocks_for_each_row_and_enough_of_them_in_all(
    driver: Driver, card: CudaCard, monkeypatch: pytest.MonkeyPatch, rows: int, wide: int
) -> None:
    program = card.begin()
    table = Table(np.zeros(rows * 24, dtype=np.uint8), 1 << 40)
    copy_rows(card, program, [Row(index, index + 1, 16) for index in range(rows)], table, EVENT, STREAM)
    launch = (Command.LAUNCH, KERNEL, wide, rows, 256, 1 << 40, STREAM)
    here, nbytes = table.host.ctypes.data, table.host.nbytes
    assert program.rows == [
        (Command.BIND, CONTEXT, 0, 0, 0, 0, 0),
        (Command.COPY_IN, 1 << 40, here, nbytes, STREAM, 0, 0),
        (Command.RECORD, EVENT, STREAM, 0, 0, 0, 0),
        launch,
    ]
    assert table.host.view(np.uint64).tolist() == [
        number for index in range(rows) for number in (index, index + 1, 16)
    ]
    # Without the compiled helper the same calls are made one by one.
    monkeypatch.setattr(program_module, "_compiled", None)
    card.run(program)
    *before, (name, kernel, *shape, shared_bytes, stream, _, extra) = driver.called
    assert before == [
        ("cuCtxSetCurrent", CONTEXT),
        ("cuMemcpyHtoDAsync", 1 << 40, here, nbytes, STREAM),
        ("cuEventRecord", EVENT, STREAM),
    ]
    assert (name, kernel, shape) == ("cuLaunchKernel", KERNEL, [wide, rows, 1, 256, 1, 1])
    assert (shared_bytes, stream, extra) == (0, STREAM, 0)


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
    "cuLaunchKernel": lambda card: card.launch(1, 2, 3),
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
