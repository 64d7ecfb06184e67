"""One GPU through its driver (cuda-bindings): memory, registered host memory, streams, events, copies."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kvspill.errors import UsageError
from kvspill.machine.gpu import DeviceError, call
from kvspill.machine.processors import near_device
from kvspill.storage.buffers import map_memory
from kvspill.storage.gpu.kernels import KERNELS, Kernel, Launcher
from kvspill.storage.gpu.program import STAMP_IN_BYTES, STAMP_OUT_BYTES, Calls, Command, Program
from kvspill.storage.stamps import BLOCK_BYTES, Bytes


@dataclass(frozen=True, slots=True)
class CardFacts:
    """A card as its driver describes it."""

    index: int
    name: str
    total_bytes: int
    free_bytes: int
    driver: str
    pci_address: str


class Card(Calls, Launcher, Protocol):
    """What the GPU tier needs of one card."""

    facts: CardFacts

    def allocate(self, nbytes: int) -> int:
        """Device memory; returns its address."""

    def register(self, memory: Bytes) -> None:
        """Pin host memory, so that copies from and to it run at the link's speed."""

    def unregister(self, memory: Bytes) -> None:
        """Undo register."""

    def mapped(self, memory: Bytes) -> int:
        """The address by which the card knows registered memory."""

    def new_stream(self) -> int:
        """A stream of its own."""

    def new_event(self) -> int:
        """An event that can be waited for without spinning, and that keeps time."""

    def begin(self) -> Program:
        """A program for this card, whichever thread runs it."""

    def run(self, program: Program) -> None:
        """Carry a program out; the first call that fails ends it."""

    def synchronize(self) -> None:
        """Wait for all that is under way on the card, from whichever thread it came."""

    def close(self) -> None:
        """Give all device memory back."""


class Pinned:
    """All host memory that is registered with one card, so that all of it is given back whatever fails."""

    def __init__(self, card: Card):
        self.card = card
        self._memory: dict[int, Bytes] = {}

    def new(self, nbytes: int) -> Bytes:
        """New memory on the card's NUMA node, touched and registered."""
        memory = map_memory(nbytes)
        with near_device(self.card.facts.pci_address):
            memory[::BLOCK_BYTES] = 0
        self.add(memory)
        return memory

    def add(self, memory: Bytes) -> None:
        """Register memory."""
        self.card.bind()
        self.card.register(memory)
        self._memory[memory.ctypes.data] = memory

    def give_up(self, memory: Bytes) -> None:
        """Undo add."""
        self.card.bind()
        self.card.unregister(self._memory.pop(memory.ctypes.data))

    def release(self) -> None:
        """Unregister all memory; nothing is under way any more."""
        for memory in tuple(self._memory.values()):
            # A lost card takes nothing back; the process's end frees it.
            with suppress(DeviceError):
                self.give_up(memory)


_FUNCTIONS = {
    Command.BIND: b"cuCtxSetCurrent",
    Command.RECORD: b"cuEventRecord",
    Command.WAIT: b"cuEventSynchronize",
    Command.COPY_IN: b"cuMemcpyHtoDAsync",
    Command.COPY_OUT: b"cuMemcpyDtoHAsync",
    Command.STAMPS_IN: b"cuMemcpy2DAsync",
    Command.STAMPS_OUT: b"cuMemcpy2DAsync",
    Command.LAUNCH: b"cuLaunchKernel",
    Command.ELAPSED: b"cuEventElapsedTime",
}
"""Which of the driver's functions a command of the compiled helper calls."""
_API_VERSION = 12000
"""Of the driver's functions whose arguments the compiled helper knows."""


def look_at_card(index: int) -> CardFacts:
    """What the driver says of a card; nothing stays allocated on it."""
    with opening():
        card = CudaCard(index)
        try:
            return card.facts
        finally:
            card.close()


@contextmanager
def opening() -> Iterator[None]:
    """A card that can't be opened is said with the remedy."""
    try:
        yield
    except DeviceError as error:
        raise UsageError(f"--gpu-tier: {error}; see nvidia-smi, or use --gpu-tier modelled or off") from error


class CudaCard:
    """A Card of the real driver."""

    def __init__(self, index: int):
        from cuda.bindings import driver

        self._driver: Any = driver
        call("cuInit", driver.cuInit(0))
        self._device = call("cuDeviceGet", driver.cuDeviceGet(index))
        self._context = call("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(self._device))
        self._allocated: list[int] = []
        self._closed = False
        try:
            self._open(index)
        except DeviceError:
            with suppress(DeviceError):
                self.close()
            raise

    def _open(self, index: int) -> None:
        driver = self._driver
        self.bind()
        self.facts = self._describe(index)
        module = call("cuModuleLoadData", driver.cuModuleLoadData(KERNELS))
        self._kernels = {
            kernel: call(
                "cuModuleGetFunction", driver.cuModuleGetFunction(module, kernel.name.lower().encode())
            )
            for kernel in Kernel
        }
        self._functions = np.zeros(len(Command), dtype=np.uint64)
        for command, name in _FUNCTIONS.items():
            found = driver.cuGetProcAddress(name, _API_VERSION, 0)
            self._functions[command] = int(call("cuGetProcAddress", found[:2]))

    def _describe(self, index: int) -> CardFacts:
        driver = self._driver
        memory = driver.cuMemGetInfo()
        call("cuMemGetInfo", memory)
        _, free_bytes, total_bytes = memory
        version = int(call("cuDriverGetVersion", driver.cuDriverGetVersion()))
        name = call("cuDeviceGetName", driver.cuDeviceGetName(256, self._device))
        address = call("cuDeviceGetPCIBusId", driver.cuDeviceGetPCIBusId(32, self._device))
        return CardFacts(
            index,
            _text(name),
            int(total_bytes),
            int(free_bytes),
            f"CUDA {version // 1000}.{version % 1000 // 10}",
            _text(address),
        )

    def allocate(self, nbytes: int) -> int:
        address = int(call("cuMemAlloc", self._driver.cuMemAlloc(nbytes)))
        self._allocated.append(address)
        return address

    def register(self, memory: Bytes) -> None:
        flags = self._driver.CU_MEMHOSTREGISTER_PORTABLE | self._driver.CU_MEMHOSTREGISTER_DEVICEMAP
        answer = self._driver.cuMemHostRegister(memory.ctypes.data, memory.nbytes, flags)
        call("cuMemHostRegister", answer)

    def unregister(self, memory: Bytes) -> None:
        call("cuMemHostUnregister", self._driver.cuMemHostUnregister(memory.ctypes.data))

    def mapped(self, memory: Bytes) -> int:
        answer = self._driver.cuMemHostGetDevicePointer(memory.ctypes.data, 0)
        return int(call("cuMemHostGetDevicePointer", answer))

    def new_stream(self) -> int:
        flags = self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(call("cuStreamCreate", self._driver.cuStreamCreate(flags)))

    def new_event(self) -> int:
        flags = self._driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC
        return int(call("cuEventCreate", self._driver.cuEventCreate(flags)))

    def begin(self) -> Program:
        program = Program()
        program.add(Command.BIND, int(self._context))
        return program

    def run(self, program: Program) -> None:
        answer = program.run_compiled(self._functions)
        if answer is None:
            program.run_in_python(self)
            return
        status, row = answer
        if status:
            name = _FUNCTIONS[Command(program.rows[row][0])].decode()
            call(name, (self._driver.CUresult(status),))

    def function(self, kernel: Kernel) -> int:
        return int(self._kernels[kernel])

    def bind(self) -> None:
        call("cuCtxSetCurrent", self._driver.cuCtxSetCurrent(self._context))

    def record(self, event: int, stream: int) -> None:
        call("cuEventRecord", self._driver.cuEventRecord(event, stream))

    def wait(self, event: int) -> None:
        call("cuEventSynchronize", self._driver.cuEventSynchronize(event))

    def elapsed_ns(self, begin: int, end: int) -> int:
        elapsed_ms: float = call("cuEventElapsedTime", self._driver.cuEventElapsedTime(begin, end))
        return round(elapsed_ms * 1e6)

    def copy_in(self, device: int, host: int, nbytes: int, stream: int) -> None:
        call("cuMemcpyHtoDAsync", self._driver.cuMemcpyHtoDAsync(device, host, nbytes, stream))

    def copy_out(self, host: int, device: int, nbytes: int, stream: int) -> None:
        call("cuMemcpyDtoHAsync", self._driver.cuMemcpyDtoHAsync(host, device, nbytes, stream))

    def stamps_in(self, device: int, host: int, blocks: int, stream: int) -> None:
        copy, kinds = self._driver.CUDA_MEMCPY2D(), self._driver.CUmemorytype
        copy.srcMemoryType, copy.dstMemoryType = kinds.CU_MEMORYTYPE_HOST, kinds.CU_MEMORYTYPE_DEVICE
        copy.srcHost, copy.srcPitch = host, STAMP_IN_BYTES
        copy.dstDevice, copy.dstPitch = device, BLOCK_BYTES
        copy.WidthInBytes, copy.Height = STAMP_IN_BYTES, blocks
        call("cuMemcpy2DAsync", self._driver.cuMemcpy2DAsync(copy, stream))

    def stamps_out(self, host: int, device: int, blocks: int, stream: int) -> None:
        copy, kinds = self._driver.CUDA_MEMCPY2D(), self._driver.CUmemorytype
        copy.srcMemoryType, copy.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE, kinds.CU_MEMORYTYPE_HOST
        copy.srcDevice, copy.srcPitch = device, BLOCK_BYTES
        copy.dstHost, copy.dstPitch = host, STAMP_OUT_BYTES
        copy.WidthInBytes, copy.Height = STAMP_OUT_BYTES, blocks
        call("cuMemcpy2DAsync", self._driver.cuMemcpy2DAsync(copy, stream))

    def launch(self, function: int, shape: Sequence[int], stream: int, arguments: Sequence[int]) -> None:
        values = np.array(arguments, dtype=np.uint64)
        pointers = values.ctypes.data + np.arange(len(values), dtype=np.uint64) * values.itemsize
        wide, lines, threads = shape
        grid = wide, lines, 1, threads, 1, 1
        answer = self._driver.cuLaunchKernel(function, *grid, 0, stream, pointers.ctypes.data, 0)
        call("cuLaunchKernel", answer)

    def synchronize(self) -> None:
        self.bind()
        call("cuCtxSynchronize", self._driver.cuCtxSynchronize())

    def close(self) -> None:
        allocated, self._allocated = self._allocated, []
        try:
            self.bind()
            for address in allocated:
                call("cuMemFree", self._driver.cuMemFree(address))
        finally:
            if not self._closed:
                self._closed = True
                released = self._driver.cuDevicePrimaryCtxRelease(self._device)
                call("cuDevicePrimaryCtxRelease", released)


def _text(name: bytes) -> str:
    return name.split(b"\0", 1)[0].decode(errors="replace")
