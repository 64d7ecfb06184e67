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

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.records import Completion
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane, map_memory
from kvspill.storage.dram import DramBackend
from lib.machine import end_orderly, say, table
from lib.shape import MIB

GIB = 1 << 30
BAR = 0.85
COPY_BYTES = 64 * MIB
"""Each thread copies between two regions of this size: far more than its cache holds."""
SHAPES = ((8, 32), (32, 8), (256, 8))
"""MiB of an entry and entries in flight."""
SWITCH_INTERVAL_SECONDS = 0.0005
"""As a run sets it."""


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
    """The backend of the DRAM tier, driven as the cache drives it: several requests, each one entry."""

    def __init__(self, arena_bytes: int, entry_bytes: int, in_flight: int, threads: int | None) -> None:
        self.entry_bytes = entry_bytes
        self.in_flight = in_flight
        self.backend = DramBackend(arena_bytes, plane=DataPlane(4 * MIB, 32), threads=threads)
        self._kept = [ObjectRef(f"kept{number}", 1, entry_bytes) for number in range(in_flight)]

    async def prepare(self) -> None:
        await self.backend.prepare(lambda *_: None)
        await self._check(self.backend.write([WriteItem(ref) for ref in self._kept]))

    async def read(self, seconds: float) -> float:
        async def one(number: int, _turn: int) -> None:
            await self._check(self.backend.read([self._kept[number]]))

        return await self._drive(one, seconds)

    async def write(self, seconds: float) -> float:
        async def one(number: int, turn: int) -> None:
            ref = ObjectRef(f"new{number}", turn, self.entry_bytes)
            await self._check(self.backend.write([WriteItem(ref)]))
            await self._check(self.backend.delete([ref]))

        return await self._drive(one, seconds)

    async def _drive(self, one: Callable[[int, int], Awaitable[None]], seconds: float) -> float:
        until, done = time.monotonic() + seconds, 0

        async def stream(number: int) -> None:
            nonlocal done
            while time.monotonic() < until:
                await one(number, done)
                done += 1

        began = time.monotonic()
        await asyncio.gather(*(stream(number) for number in range(self.in_flight)))
        return done * self.entry_bytes / GIB / (time.monotonic() - began)

    @staticmethod
    async def _check(call: Awaitable[list[Completion]]) -> None:
        errors = {completion.error for completion in await call} - {None}
        if errors:
            raise RuntimeError(f"operations failed: {errors}")


async def compare(args: argparse.Namespace) -> list[tuple[str, ...]]:
    threads = args.threads or len(os.sched_getaffinity(0))
    copy = plain_copy(threads)
    rows: list[tuple[str, ...]] = []
    for entry_mib, in_flight in args.shapes:
        arena_bytes = 2 * in_flight * entry_mib * MIB
        tier = Tier(arena_bytes, entry_mib * MIB, in_flight, args.threads)
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
                        f"{name} {entry_mib} MiB x{in_flight}",
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


def shape(text: str) -> tuple[int, int]:
    entry, _, in_flight = text.partition("x")
    return int(entry), int(in_flight)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, help="of both sides (default: processors of this process)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--shapes", type=shape, nargs="+", default=[(2, 32), (32, 8), (256, 8)], metavar="MIBxN"
    )
    args = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    rows = asyncio.run(compare(args))
    print(table(("operation", "tier GiB/s", "plain GiB/s", "share", f">= {BAR}"), rows))
    return 0 if all(row[-1] == "pass" for row in rows) else 1


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
