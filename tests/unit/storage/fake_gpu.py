"""Fakes of the GPU driver's calls: cards whose memory is this process's, without and with streams."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from kvspill.machine.gpu import DeviceError
from kvspill.records import GIB
from kvspill.storage.buffers import map_memory
from kvspill.storage.gpu.cuda import CardFacts
from kvspill.storage.gpu.kernels import ROW_BYTES, Kernel
from kvspill.storage.gpu.program import STAMP_IN_BYTES, STAMP_OUT_BYTES, Program, host_memory
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

    def mapped(self, memory: Bytes) -> int:
        assert memory.ctypes.data in self.registered, "a card knows registered memory alone"
        return memory.ctypes.data

    def function(self, kernel: Kernel) -> int:
        return int(kernel)

    def launch(self, function: int, shape: Sequence[int], stream: int, arguments: Sequence[int]) -> None:
        del stream
        kernel, threads = Kernel(function), shape[0] * shape[2]
        self._called(kernel.name.lower())
        if kernel.name.lower() in self.idle:
            return
        match kernel:
            case Kernel.COPY_ROWS:
                self._copy_rows(shape[1], arguments[0])
            case Kernel.MAKE_READY:
                mapped, table, words, target, blocks = arguments
                assert threads >= max(words, blocks), "a thread for each"
                self.at(table, words * 8)[:] = host_memory(mapped, words * 8)
                there = self.at(target, blocks * BLOCK_BYTES).reshape(blocks, BLOCK_BYTES)
                there[:, :STAMP_IN_BYTES] = 0
            case Kernel.TAKE_STAMPS:
                mapped, target, words = arguments[:3]
                assert threads >= words, "a thread for each"
                self._bring(mapped, target, words * 8 // STAMP_OUT_BYTES)

    def _copy_rows(self, count: int, rows: int) -> None:
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
        self._bring(host, device, blocks)

    def _bring(self, host: int, device: int, blocks: int) -> None:
        there = self.at(device, blocks * BLOCK_BYTES).reshape(blocks, BLOCK_BYTES)
        host_memory(host, blocks * STAMP_OUT_BYTES).reshape(blocks, -1)[:] = there[:, :STAMP_OUT_BYTES]

    def synchronize(self) -> None:
        self.hangs.wait()

    def close(self) -> None:
        self.closed = True


class StreamCard(FakeCard):
    """A card whose streams do nothing until an event is waited for, and then all that lies before it.

    What it does takes a device time of its kind's own, so that sums of them tell what lay between two events.
    """

    TIMES_NS: ClassVar = {
        "copy_in": 1_000,
        "copy_out": 20_000,
        "copy_rows": 300_000,
        "stamps_in": 4_000_000,
        "stamps_out": 50_000_000,
        "make_ready": 600_000_000,
        "take_stamps": 7_000_000_000,
    }

    def __init__(self, index: int = 0):
        super().__init__(index)
        self.ran: list[tuple[str, int]] = []
        """What was done, and on which stream."""
        self._queues: dict[int, deque[tuple[str, Callable[[], None]]]] = {}
        self._clocks_ns: dict[int, int] = {}
        self._pending: dict[int, int] = {}
        """How often an event was recorded without having been reached."""
        self._streams: dict[int, int] = {}
        self._turn = threading.RLock()

    def new_stream(self) -> int:
        with self._turn:
            stream = 1000 * (self.facts.index + 1) + len(self._queues)
            self._queues[stream] = deque()
            self._clocks_ns[stream] = 0
            return stream

    def _queue(self, stream: int, name: str, work: Callable[[], None]) -> None:
        with self._turn:
            assert stream in self._queues, f"{name} on stream {stream}, which was not made"
            self._queues[stream].append((name, work))

    def record(self, event: int, stream: int) -> None:
        def reached() -> None:
            self.events[event] = self._clocks_ns[stream]
            self._pending[event] -= 1

        with self._turn:
            self._queue(stream, "record", reached)
            self._pending[event] = self._pending.get(event, 0) + 1
            self._streams[event] = stream

    def wait(self, event: int) -> None:
        super().wait(event)
        with self._turn:
            stream = self._streams[event]
            while self._pending[event]:
                name, work = self._queues[stream].popleft()
                self._clocks_ns[stream] += self.TIMES_NS.get(name, 0)
                work()
                self.ran.append((name, stream))

    def elapsed_ns(self, begin: int, end: int) -> int:
        with self._turn:
            if self._pending[begin] or self._pending[end]:
                raise DeviceError("CUDA_ERROR_NOT_READY", "elapsed")
            assert self._streams[begin] == self._streams[end], "each stream has its own clock"
            return super().elapsed_ns(begin, end)

    def copy_in(self, device: int, host: int, nbytes: int, stream: int) -> None:
        self._queue(stream, "copy_in", partial(super().copy_in, device, host, nbytes, stream))

    def copy_out(self, host: int, device: int, nbytes: int, stream: int) -> None:
        self._queue(stream, "copy_out", partial(super().copy_out, host, device, nbytes, stream))

    def launch(self, function: int, shape: Sequence[int], stream: int, arguments: Sequence[int]) -> None:
        work = partial(super().launch, function, shape, stream, arguments)
        self._queue(stream, Kernel(function).name.lower(), work)

    def stamps_in(self, device: int, host: int, blocks: int, stream: int) -> None:
        self._queue(stream, "stamps_in", partial(super().stamps_in, device, host, blocks, stream))

    def stamps_out(self, host: int, device: int, blocks: int, stream: int) -> None:
        self._queue(stream, "stamps_out", partial(super().stamps_out, host, device, blocks, stream))
