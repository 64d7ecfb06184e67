"""Shows how near the GPU tier comes to plain copies by the driver, on the card and over PCIe, in one run."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.machine.gpu import call, why_unusable
from kvspill.records import Completion
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane, map_memory
from kvspill.storage.dram import DramBackend
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.storage.gpu.cuda import CudaCard
from lib.machine import end_orderly, say, skip, table
from lib.shape import MIB

GB = 1e9
GIB = 1 << 30
PLAIN_BYTES = GIB
SWITCH_INTERVAL_SECONDS = 0.0005
"""As a run sets it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One row: what the tier reached beside the plain copy."""

    name: str
    device_rate: float
    """Bytes per second of device time."""
    wall_rate: float
    plain_rate: float
    bar: float | None
    overlap: bool = False
    """Whether the copies go on several streams: their device times overlap, and the wall says more."""

    @property
    def ratio(self) -> float:
        reached = max(self.device_rate, self.wall_rate) if self.overlap else self.device_rate
        return reached / self.plain_rate

    def row(self) -> tuple[str, ...]:
        verdict = "" if self.bar is None else "pass" if self.ratio >= self.bar else "MISS"
        bar = "" if self.bar is None else f"{self.bar:g}"
        wall = f"{self.wall_rate / GB:,.1f}", f"{self.wall_rate / self.plain_rate:.2f}"
        return (
            self.name,
            f"{self.device_rate / GB:,.1f}",
            *wall,
            f"{self.plain_rate / GB:,.1f}",
            f"{self.ratio:.2f}",
            bar,
            verdict,
        )


class Plain:
    """Copies by the driver alone, issued back to back and timed by events."""

    def __init__(self, device: int):
        from cuda.bindings import driver

        self._driver: Any = driver
        self.card = CudaCard(device)
        self._here, self._there = (self.card.allocate(PLAIN_BYTES) for _ in range(2))
        self._in, self._out = (map_memory(PLAIN_BYTES) for _ in range(2))
        for memory in (self._in, self._out):
            memory[::4096] = 1
            self.card.register(memory)
        self._streams = [self.card.new_stream() for _ in range(2)]
        self._events = [self.card.new_event() for _ in range(3)]

    def inside(self, nbytes: int) -> float:
        def copy(at: int, stream: Any) -> None:
            answer = self._driver.cuMemcpyDtoDAsync(self._there + at, self._here + at, nbytes, stream)
            call("cuMemcpyDtoDAsync", answer)

        return self._rate(copy, nbytes, self._streams[:1])

    def inward(self, nbytes: int) -> float:
        def copy(at: int, stream: Any) -> None:
            self.card.copy_in(self._here + at, self._in.ctypes.data + at, nbytes, stream)

        return self._rate(copy, nbytes, self._streams[:1])

    def outward(self, nbytes: int) -> float:
        def copy(at: int, stream: Any) -> None:
            self.card.copy_out(self._out.ctypes.data + at, self._there + at, nbytes, stream)

        return self._rate(copy, nbytes, self._streams[:1])

    def both(self, nbytes: int) -> float:
        def copy(at: int, stream: Any) -> None:
            if stream is self._streams[0]:
                self.card.copy_in(self._here + at, self._in.ctypes.data + at, nbytes, stream)
            else:
                self.card.copy_out(self._out.ctypes.data + at, self._there + at, nbytes, stream)

        return self._rate(copy, nbytes, self._streams)

    def _rate(self, copy: Callable[[int, Any], None], nbytes: int, streams: Sequence[Any]) -> float:
        self.card.bind()
        begin, end, other = self._events
        rates = []
        for _ in range(3):
            self.card.record(begin, streams[0])
            moved = 0
            for _ in range(2):
                for at in range(0, PLAIN_BYTES - nbytes + 1, nbytes):
                    for stream in streams:
                        copy(at, stream)
                        moved += nbytes
            if len(streams) > 1:
                self.card.record(other, streams[1])
                call("cuStreamWaitEvent", self._driver.cuStreamWaitEvent(streams[0], other, 0))
            self.card.record(end, streams[0])
            self.card.wait(end)
            rates.append(moved / self.card.elapsed_ns(begin, end) * 1e9)
        return median(rates)


class Tier:
    """The backend, driven as the cache drives it: several requests at once, each one batch."""

    def __init__(self, args: argparse.Namespace, arena_bytes: int):
        plane = DataPlane(4 * MIB, 32)
        self.dram = DramBackend(8 * GIB, plane=plane)
        self.backend = GpuBackend(
            arena_bytes, (args.device,), args.verify, plane=plane, host_memory=self.dram.host_memory()
        )
        self.seconds = args.seconds

    async def prepare(self) -> None:
        await self.dram.prepare(lambda *_: None)
        await self.backend.prepare(lambda *_: None)

    async def close(self) -> None:
        await self.backend.close()
        await self.dram.close()

    async def hits(self, nbytes: int, batch: int, in_flight: int) -> tuple[float, float]:
        refs = [
            [ObjectRef(f"h{stream}_{number}", 1, nbytes) for number in range(batch)]
            for stream in range(in_flight)
        ]
        for number in range(batch):
            # Written in turns, so that the blocks of a batch don't lie beside each other.
            await checked(self.backend.write([WriteItem(mine[number]) for mine in refs]))
        found = await self._drive(
            lambda stream, _turn: self.backend.read(refs[stream]), in_flight, "hbm_read"
        )
        for mine in refs:
            await checked(self.backend.delete(mine))
        return found

    async def puts(self, nbytes: int, in_flight: int) -> tuple[float, float]:
        async def one(stream: int, turn: int) -> list[Completion]:
            ref = ObjectRef(f"p{stream}", turn, nbytes)
            answer = await checked(self.backend.write([WriteItem(ref)]))
            await checked(self.backend.delete([ref]))
            return answer

        return await self._drive(one, in_flight, "pcie_in")

    async def demotions(self, nbytes: int, in_flight: int) -> tuple[float, float]:
        refs = [ObjectRef(f"d{stream}", 1, nbytes) for stream in range(in_flight)]
        await checked(self.backend.write([WriteItem(ref) for ref in refs]))

        async def one(stream: int, _turn: int) -> list[Completion]:
            ref = refs[stream]
            answer = await checked(self.dram.write([WriteItem(ref, self.backend.lend(ref))]))
            await checked(self.dram.delete([ref]))
            return answer

        found = await self._drive(one, in_flight, "pcie_out")
        await checked(self.backend.delete(refs))
        return found

    async def waits(self, nbytes: int, in_flight: int) -> float:
        """The median time of a hit from asking to answer, in milliseconds."""
        refs = [ObjectRef(f"w{stream}", 1, nbytes) for stream in range(in_flight)]
        await checked(self.backend.write([WriteItem(ref) for ref in refs]))
        times = []

        async def one(stream: int, _turn: int) -> list[Completion]:
            answer = await checked(self.backend.read([refs[stream]]))
            times.append((answer[0].finished_ns - answer[0].submitted_ns) / 1e6)
            return answer

        await self._drive(one, in_flight, "hbm_read")
        await checked(self.backend.delete(refs))
        return median(times)

    async def _drive(
        self, one: Callable[[int, int], Awaitable[list[Completion]]], in_flight: int, way: str
    ) -> tuple[float, float]:
        """Bytes per second of device time and of wall time."""
        before, began, turn = dict(self.backend.facts()), time.monotonic(), 0
        until = began + self.seconds

        async def stream(number: int) -> None:
            nonlocal turn
            while time.monotonic() < until:
                turn += 1
                await checked(one(number, turn))

        await asyncio.gather(*(stream(number) for number in range(in_flight)))
        wall = time.monotonic() - began
        after = self.backend.facts()
        moved, device = (
            float(after[f"{way}_{name}"]) - float(before[f"{way}_{name}"])
            for name in ("bytes", "device_seconds")
        )
        return moved / device, moved / wall


async def checked(call: Awaitable[list[Completion]]) -> list[Completion]:
    answer = await call
    errors = {completion.error for completion in answer} - {None}
    if errors:
        raise RuntimeError(f"operations failed: {errors}")
    return answer


async def compare(args: argparse.Namespace) -> list[Compared]:
    plain, tier = Plain(args.device), Tier(args, 24 * GIB)
    await tier.prepare()
    rows: list[Compared] = []

    def add(
        name: str, found: tuple[float, float], limit: float, bar: float | None, overlap: bool = False
    ) -> None:
        rows.append(Compared(name, *found, limit, bar, overlap))
        say("  ".join(rows[-1].row()))

    try:
        for mib in (32, 256):
            limit = plain.inside(mib * MIB)
            add(f"hits {mib} MiB x8", await tier.hits(mib * MIB, 1, 8), limit, 0.8)
        limit = plain.inside(64 * MIB)
        add("hits 32 x 2 MiB x8", await tier.hits(2 * MIB, 32, 8), limit, 0.5)
        for mib in (2, 32, 256):
            limit = plain.inward(mib * MIB)
            bar = 0.9 if mib >= 32 else None
            add(f"puts {mib} MiB x8", await tier.puts(mib * MIB, 8), limit, bar)
            limit = plain.outward(mib * MIB)
            add(f"demotions {mib} MiB x8", await tier.demotions(mib * MIB, 8), limit, bar, True)
        limit = plain.both(32 * MIB)
        puts, demotions = await asyncio.gather(tier.puts(32 * MIB, 8), tier.demotions(32 * MIB, 8))
        add("both ways 32 MiB", (puts[1] + demotions[1], puts[1] + demotions[1]), limit, 0.85)
        alone = await tier.waits(32 * MIB, 2)
        beside, *_ = await asyncio.gather(
            tier.waits(32 * MIB, 2), tier.puts(32 * MIB, 8), tier.demotions(32 * MIB, 8)
        )
        say(
            f"a hit of 32 MiB takes {alone:.3f} ms alone, {beside:.3f} ms beside puts and demotions (medians)"
        )
    finally:
        await tier.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--verify", choices=("off", "stamp", "full"), default="off")
    args = parser.parse_args()
    reason = why_unusable()
    if reason is not None:
        return skip(reason)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    rows = asyncio.run(compare(args))
    heads = (
        "operation",
        "device GB/s",
        "wall GB/s",
        "wall/plain",
        "plain GB/s",
        "reached/plain",
        "bar",
        "verdict",
    )
    print(table(heads, [row.row() for row in rows]))
    print("reached: by device time; demotions go on several streams, so by wall time where that is shorter")
    return 3 if any(row.bar is not None and row.ratio < row.bar for row in rows) else 0


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
