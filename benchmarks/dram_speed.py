"""Shows how near the DRAM tier comes to plain copies of memory by as many threads, measured in turn."""

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.records import Completion
from kvspill.run.interpreter import rarer_collections, switch_interval
from kvspill.storage.arena import page_bytes_for
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane, map_memory
from kvspill.storage.dram import DramBackend
from lib.machine import end_orderly, say, table
from lib.shape import MIB

GIB = 1 << 30
BAR = 0.85
COPY_BYTES = 64 * MIB
"""Each thread copies between two regions of this size: far more than its cache holds."""


class Shape(NamedTuple):
    """What is asked for at once."""

    entry_mib: int
    in_flight: int
    batch: int = 1
    """Entries of one request."""

    @property
    def batch_bytes(self) -> int:
        return self.batch * self.entry_mib * MIB

    def refs(self, name: str) -> list[ObjectRef]:
        """A batch of entries."""
        return [ObjectRef(f"{name}_{number}", 1, self.entry_mib * MIB) for number in range(self.batch)]

    def __str__(self) -> str:
        each = f"{self.batch} x " if self.batch > 1 else ""
        return f"{each}{self.entry_mib} MiB x{self.in_flight}"


def plain_copy(threads: int) -> Callable[[float], float]:
    """Copies by np.copyto, one pair of touched regions a thread; returns what measures GiB/s."""
    pairs = [(map_memory(COPY_BYTES), map_memory(COPY_BYTES)) for _ in range(threads)]
    for source, target in pairs:
        source[:] = 1
        target[:] = 0

    def measure(seconds: float) -> float:
        until = time.monotonic() + seconds
        copied = [0] * threads

        def work(index: int) -> None:
            source, target = pairs[index]
            while time.monotonic() < until:
                np.copyto(target, source)
                copied[index] += COPY_BYTES

        workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
        began = time.monotonic()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return sum(copied) / GIB / (time.monotonic() - began)

    return measure


class Tier:
    """The backend of the DRAM tier, driven as the cache drives it: several requests, each one batch."""

    def __init__(self, shape: Shape, threads: int | None) -> None:
        self.shape = shape
        arena_bytes = 2 * shape.in_flight * shape.batch_bytes
        self.backend = DramBackend(
            arena_bytes,
            plane=DataPlane(4 * MIB, 32),
            threads=threads,
            page_bytes=page_bytes_for(shape.entry_mib * MIB, 4 * MIB),
        )
        self._kept = [shape.refs(f"kept{number}") for number in range(shape.in_flight)]

    async def prepare(self) -> None:
        await self.backend.prepare(lambda *_: None)
        for refs in self._kept:
            await self._check(self.backend.write([WriteItem(ref) for ref in refs]))

    async def read(self, seconds: float) -> float:
        async def one(number: int, _turn: int) -> None:
            await self._check(self.backend.read(self._kept[number]))

        return await self._drive(one, seconds)

    async def write(self, seconds: float) -> float:
        async def one(number: int, turn: int) -> None:
            refs = self.shape.refs(f"new{number}_{turn}")
            await self._check(self.backend.write([WriteItem(ref) for ref in refs]))
            await self._check(self.backend.delete(refs))

        return await self._drive(one, seconds)

    async def _drive(self, one: Callable[[int, int], Awaitable[None]], seconds: float) -> float:
        until, done = time.monotonic() + seconds, 0

        async def stream(number: int) -> None:
            nonlocal done
            while time.monotonic() < until:
                await one(number, done)
                done += 1

        began = time.monotonic()
        await asyncio.gather(*(stream(number) for number in range(self.shape.in_flight)))
        return done * self.shape.batch_bytes / GIB / (time.monotonic() - began)

    @staticmethod
    async def _check(call: Awaitable[list[Completion]]) -> None:
        errors = {completion.error for completion in await call} - {None}
        if errors:
            raise RuntimeError(f"operations failed: {errors}")


async def compare(args: argparse.Namespace) -> list[tuple[str, ...]]:
    threads = args.threads or len(os.sched_getaffinity(0))
    copy = plain_copy(threads)
    rows: list[tuple[str, ...]] = []
    for shape in args.shapes:
        tier = Tier(shape, args.threads)
        await tier.prepare()
        try:
            for name, measure in (("read", tier.read), ("write", tier.write)):
                found = []
                for _ in range(args.rounds):
                    plain = copy(args.seconds)
                    found.append((await measure(args.seconds), plain))
                tier_gib, plain_gib = (median(side) for side in zip(*found, strict=True))
                share = median(ours / plain for ours, plain in found)
                verdict = "pass" if share >= BAR else "FAIL"
                rows.append(
                    (
                        f"{name} {shape}",
                        f"{tier_gib:.1f}",
                        f"{plain_gib:.1f}",
                        f"{share:.2f}",
                        verdict,
                    )
                )
                say("  ".join(rows[-1]))
        finally:
            await tier.backend.close()
    return rows


def shape_of(text: str) -> Shape:
    return Shape(*(int(number) for number in text.split("x")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, help="of both sides (default: processors of this process)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--shapes",
        type=shape_of,
        nargs="+",
        default=[Shape(2, 32), Shape(2, 8, 32), Shape(32, 8), Shape(256, 8)],
        metavar="MIBxN[xBATCH]",
        help="size of an entry, requests in flight, entries of each",
    )
    args = parser.parse_args()
    with switch_interval(), rarer_collections(simulated=False):
        rows = asyncio.run(compare(args))
    print(table(("operation", "tier GiB/s", "plain GiB/s", "share", f">= {BAR}"), rows))
    return 0 if all(row[-1] == "pass" for row in rows) else 1


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
