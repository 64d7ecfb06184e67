"""Shows how the nixl backend (POSIX plug-in) compares with the files backend on the same directory."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.records import Completion
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.nixl.agent import read_parameters, why_missing
from kvspill.storage.nixl.backend import NixlBackend
from lib.machine import end_orderly, say, skip, table
from lib.shape import MIB
from lib.stats import paired_ratio

GIB = 1 << 30
KEPT = 16
SWITCH_INTERVAL_SECONDS = 0.0005
"""As a run sets it."""


class Side:
    """A backend, driven as the cache drives it: several requests, each one entry."""

    def __init__(self, backend: Backend, entry_bytes: int, in_flight: int):
        self.backend = backend
        self._entry_bytes = entry_bytes
        self._in_flight = in_flight
        self._turn = 0
        self._kept = [ObjectRef(f"kept{number}", 1, entry_bytes) for number in range(KEPT)]

    async def prepare(self) -> None:
        await self.backend.prepare(lambda *_: None)
        await _check(self.backend.write([WriteItem(ref) for ref in self._kept]))

    async def measure(self, op: str, seconds: float) -> float:
        """GiB/s."""
        until, done = time.monotonic() + seconds, 0
        written: list[ObjectRef] = []

        async def stream() -> None:
            nonlocal done
            while time.monotonic() < until:
                self._turn += 1
                if op == "read":
                    await _check(self.backend.read([self._kept[self._turn % KEPT]]))
                else:
                    written.append(ObjectRef(f"new{self._turn}", 1, self._entry_bytes))
                    await _check(self.backend.write([WriteItem(written[-1])]))
                done += 1

        began = time.monotonic()
        await asyncio.gather(*(stream() for _ in range(self._in_flight)))
        took = time.monotonic() - began
        await self.backend.delete(written)
        return done * self._entry_bytes / GIB / took


async def _check(call: Awaitable[list[Completion]]) -> None:
    errors = {completion.error for completion in await call} - {None}
    if errors:
        raise RuntimeError(f"operations failed: {errors}")


async def compare(args: argparse.Namespace) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    parameters = read_parameters(args.params)
    for entry_mib, in_flight in args.shapes:
        options = FilesOptions(io_threads=args.threads)
        plane = DataPlane(options.io_size, args.threads)
        nixl = NixlBackend([args.directory], options, "POSIX", parameters, time.monotonic_ns, plane)
        files = FilesBackend([args.directory], options, time.monotonic_ns, plane)
        sides = [Side(backend, entry_mib * MIB, in_flight) for backend in (nixl, files)]
        try:
            for side in sides:
                await side.prepare()
            for op in ("read", "write"):
                found: list[list[float]] = [[], []]
                for number in range(args.rounds):
                    for which in (0, 1) if number % 2 else (1, 0):
                        found[which].append(await sides[which].measure(op, args.seconds))
                ratio = paired_ratio(found[0], found[1])
                middle = [f"{sorted(side)[len(side) // 2]:.2f}" for side in found]
                rows.append((f"{op} {entry_mib} MiB x{in_flight}", *middle, str(ratio)))
                say("  ".join(rows[-1]))
        finally:
            for side in sides:
                await side.backend.close()
    return rows


def shape(text: str) -> tuple[int, int]:
    entry, _, in_flight = text.partition("x")
    return int(entry), int(in_flight)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--params", help="parameters of NIXL's plug-in: NAME=VALUE,NAME=VALUE")
    parser.add_argument("--shapes", type=shape, nargs="+", default=[(4, 8), (32, 8)], metavar="MIBxN")
    args = parser.parse_args()
    reason = why_missing("POSIX")
    if reason is not None:
        return skip(reason)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    print(table(("operation", "nixl GiB/s", "files GiB/s", "ratio"), asyncio.run(compare(args))))
    return 0


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
