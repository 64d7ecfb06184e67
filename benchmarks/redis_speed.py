"""Shows how near the redis backend comes to redis-benchmark on the same server, measured in turn."""

import argparse
import asyncio
import contextlib
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.records import Completion
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.redis.backend import RedisBackend, RedisOptions
from kvspill.storage.redis.server import Access
from lib.machine import end_orderly, say, skip, table, tool_missing
from lib.shape import MIB
from lib.stats import paired_ratio

GIB = 1 << 30
BAR = 0.8
VALUES_PER_ENTRY = 8
HELD_BYTES = 512 * MIB
"""What both sides keep on the server: each reads it again and again."""
SWITCH_INTERVAL_SECONDS = 0.0005
"""As a run sets it."""


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A server of our own on a socket; gives the socket's path."""
    with tempfile.TemporaryDirectory(prefix="kvspill-redis-") as folder:
        path = f"{folder}/redis.sock"
        words = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            while not Path(path).exists():
                time.sleep(0.01)
            yield path
        finally:
            process.kill()
            process.wait()


class Peer:
    """redis-benchmark with the same values, connections and pipeline."""

    def __init__(self, path: str, value_bytes: int, connections: int, pipeline: int):
        self._words = ["redis-benchmark", "-s", path, "-d", str(value_bytes), "-c", str(connections)]
        self._words += ["-P", str(pipeline), "-r", str(HELD_BYTES // value_bytes), "--csv"]
        self._value_bytes = value_bytes
        self._per_second = {"read": 200.0, "write": 200.0}

    def prepare(self, path: str) -> None:
        """Let every key that it can draw hold a value."""
        import redis

        with redis.Redis(unix_socket_path=path) as client:
            for number in range(HELD_BYTES // self._value_bytes):
                client.set(f"key:{number:012}", bytes(self._value_bytes))

    def measure(self, op: str, seconds: float) -> float:
        """GiB/s, as it counts them itself."""
        requests = max(64, round(self._per_second[op] * seconds))
        words = [*self._words, "-t", {"read": "get", "write": "set"}[op], "-n", str(requests)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        row = list(csv.reader(done.stdout.splitlines()))[-1]
        self._per_second[op] = float(row[1])
        return float(row[1]) * self._value_bytes / GIB


class Ours:
    """The backend, driven as the cache drives it: several requests, each one entry."""

    def __init__(self, path: str, value_bytes: int, connections: int, pipeline: int):
        options = RedisOptions(io_threads=connections, value_bytes=value_bytes, depth=pipeline)
        plane = DataPlane(min(4 * MIB, value_bytes), max(connections, 8))
        self.backend = RedisBackend(Access(f"unix://{path}"), options, plane, 4 * HELD_BYTES)
        self._entry_bytes = VALUES_PER_ENTRY * value_bytes
        count = connections * max(1, HELD_BYTES // self._entry_bytes // connections)
        self._streams = connections
        self._kept = [ObjectRef(f"kept{number}", 1, self._entry_bytes) for number in range(count)]

    async def prepare(self) -> None:
        await self.backend.prepare(lambda *_: None)
        await _check(self.backend.write([WriteItem(ref) for ref in self._kept]))

    async def measure(self, op: str, seconds: float) -> float:
        async def one(turn: int) -> None:
            # As in the cache, an entry is written by one at a time.
            ref = self._kept[turn % len(self._kept)]
            await _check(self.backend.read([ref]) if op == "read" else self.backend.write([WriteItem(ref)]))

        return await self._drive(one, seconds)

    async def _drive(self, one: Callable[[int], Awaitable[None]], seconds: float) -> float:
        until, done = time.monotonic() + seconds, 0

        async def stream(turn: int) -> None:
            nonlocal done
            while time.monotonic() < until:
                await one(turn)
                turn += self._streams
                done += 1

        began = time.monotonic()
        await asyncio.gather(*(stream(index) for index in range(self._streams)))
        return done * self._entry_bytes / GIB / (time.monotonic() - began)


async def _check(call: Awaitable[list[Completion]]) -> None:
    errors = {f"{found.error}: {found.detail}" for found in await call if found.error is not None}
    if errors:
        raise RuntimeError(f"operations failed: {errors}")


async def compare(args: argparse.Namespace) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for value_mib, connections, pipeline in args.shapes:
        with server() as path:
            shape = path, round(value_mib * MIB), connections, pipeline
            peer, ours = Peer(*shape), Ours(*shape)
            peer.prepare(path)
            await ours.prepare()
            try:
                for op in ("read", "write"):
                    found: list[tuple[float, float]] = []
                    for number in range(args.rounds + 1):
                        theirs = peer.measure(op, args.seconds)
                        pair = await ours.measure(op, args.seconds), theirs
                        # The first round warms both sides up, and tells how many requests take that long.
                        found += [pair] if number else []
                    rows.append(_row(f"{op} {value_mib:g} MiB x{connections}, pipeline {pipeline}", found))
                    say("  ".join(rows[-1]))
            finally:
                await ours.backend.close()
    return rows


def _row(name: str, found: list[tuple[float, float]]) -> tuple[str, ...]:
    ours, theirs = ([pair[side] for pair in found] for side in (0, 1))
    ratio = paired_ratio(ours, theirs)
    verdict = "pass" if ratio.median >= BAR else "FAIL"
    shown = f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    return (
        name,
        f"{sorted(ours)[len(ours) // 2]:.2f}",
        f"{sorted(theirs)[len(theirs) // 2]:.2f}",
        shown,
        verdict,
    )


def shape(text: str) -> tuple[float, int, int]:
    value, connections, pipeline = text.split("x")
    return float(value), int(connections), int(pipeline)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument(
        "--shapes",
        type=shape,
        nargs="+",
        default=[(4, 8, 2), (4, 32, 2), (1, 8, 4), (16, 4, 1)],
        metavar="MIBxCONNECTIONSxPIPELINE",
    )
    args = parser.parse_args()
    for tool, package in (("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")):
        reason = tool_missing(tool, package)
        if reason is not None:
            return skip(reason)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    rows = asyncio.run(compare(args))
    head = ("operation", "kvspill GiB/s", "redis-benchmark GiB/s", "ratio", f">= {BAR}")
    print(table(head, rows))
    return 0 if all(row[-1] == "pass" for row in rows) else 3


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
