"""A fake of the GPU driver's calls: a card whose memory is this process's."""

import threading
import time

import numpy as np

from kvspill.machine.gpu import DeviceError
from kvspill.records import GIB
from kvspill.storage.buffers import map_memory
from kvspill.storage.gpu.cuda import ROW_BYTES, CardFacts
from kvspill.storage.gpu.program import STAMP_IN_BYTES, STAMP_OUT_BYTES, Command, Program, host_memory
from kvspill.storage.stamps import BLOCK_BYTES, Bytes


class FakeCard:
    """A card whose memory is this process's: copies happen when they are issued, events keep the time."""

    def __init__(self, index: int = 0, free_bytes: int = 4 * GIB):
        self.facts = CardFacts(index, "Fake 1", 2 * free_bytes, free_bytes, "CUDA 13.0", "0000:00:00.0")
        self.memory: dict[int, Bytes] = {}
        self.registered: list[int] = []
        self.calls: list[str] = []
        self.fails: dict[str, str] = {}
        """The error that a call answers from now on."""
        self.idle: set[str] = set()
        """Copies that say they were made and move nothing."""
        self.events: list[int] = []
        self.hangs = threading.Event()
        self.hangs.set()
        self.closed = False

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise DeviceError(self.fails[name], name)

    def at(self, address: int, nbytes: int) -> Bytes:
        for start, memory in self.memory.items():
            if start <= address and address + nbytes <= start + len(memory):
                return memory[address - start : address - start + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address:#x} are not allocated")

    def bind(self) -> None:
        pass

    def allocate(self, nbytes: int) -> int:
        self._called("allocate")
        start = (1 << 40) + len(self.memory) * (1 << 36) + (self.facts.index << 44)
        self.memory[start] = map_memory(nbytes)
        return start

    def register(self, memory: Bytes) -> None:
        self._called("register")
        assert memory.ctypes.data not in self.registered, "registered twice"
        self.registered.append(memory.ctypes.data)

    def unregister(self, memory: Bytes) -> None:
        self.registered.remove(memory.ctypes.data)

    def new_stream(self) -> int:
        return 1

    def new_event(self) -> int:
        self.events.append(0)
        return len(self.events) - 1

    def begin(self) -> Program:
        return Program()

    def run(self, program: Program) -> None:
        program.run_in_python(self)

    def record(self, event: int, stream: int) -> None:
        del stream
        self.events[event] = time.monotonic_ns()

    def wait(self, event: int) -> None:
        del event
        self.hangs.wait()
        self._called("wait")

    def elapsed_ns(self, begin: int, end: int) -> int:
        return self.events[end] - self.events[begin]

    def copy_in(self, device: int, host: int, nbytes: int, stream: int) -> None:
        del stream
        self._called("copy_in")
        if "copy_in" in self.idle:
            return
        self.at(device, nbytes)[:] = host_memory(host, nbytes)

    def copy_out(self, host: int, device: int, nbytes: int, stream: int) -> None:
        del stream
        self._called("copy_out")
        host_memory(host, nbytes)[:] = self.at(device, nbytes)

    def launch_rows(self, program: Program, count: int, rows: int, stream: int) -> None:
        program.add(Command.LAUNCH, 0, 0, count, 0, rows, stream)

    def launch(self, count: int, rows: int, stream: int) -> None:
        del stream
        self._called("launch")
        if "launch" in self.idle:
            return
        table = self.at(rows, count * ROW_BYTES).view(np.uint64).reshape(count, 3)
        for source, target, nbytes in table.tolist():
            self.at(target, nbytes)[:] = self.at(source, nbytes)

    def stamps_in(self, device: int, host: int, blocks: int, stream: int) -> None:
        del stream
        self._called("stamps_in")
        there = self.at(device, blocks * BLOCK_BYTES).reshape(blocks, BLOCK_BYTES)
        there[:, :STAMP_IN_BYTES] = host_memory(host, blocks * STAMP_IN_BYTES).reshape(blocks, -1)

    def stamps_out(self, host: int, device: int, blocks: int, stream: int) -> None:
        del stream
        self._called("stamps_out")
        there = self.at(device, blocks * BLOCK_BYTES).reshape(blocks, BLOCK_BYTES)
        host_memory(host, blocks * STAMP_OUT_BYTES).reshape(blocks, -1)[:] = there[:, :STAMP_OUT_BYTES]

    def close(self) -> None:
        self.closed = True
