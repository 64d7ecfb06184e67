"""Holds the s3 backend against a plain loop over its client: the same objects and requests in flight."""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import obstore

from kvspill.config import Config
from kvspill.records import Tier
from kvspill.storage.backends.s3 import PLUGIN
from kvspill.storage.base import BackendContext, ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.objects.backend import ObjectBackend
from kvspill.storage.objects.stores import PART_BYTES_MIN, open_stores
from lib.machine import end_orderly, say, table
from lib.shape import MIB
from lib.stats import paired_ratio
from object_servers import BUCKET, serving, why_not

GIB = 1 << 30
BAR = 0.9
SHAPES = ((1, 64), (4, 32), (32, 8))
"""MiB of an object and how many of them a round moves."""
PARTS_AT_ONCE = 4


class Plain:
    """What a user of the client library would write: a pool of threads, put and get."""

    def __init__(self, store: Any, in_flight: int, object_bytes: int, ranges: bool):
        self.store, self.ranges = store, ranges
        self.in_flight, self.object_bytes = in_flight, object_bytes
        self.data = os.urandom(object_bytes)

    def write(self, keys: Sequence[str]) -> None:
        parts = PARTS_AT_ONCE if self.object_bytes > PART_BYTES_MIN else 1
        with ThreadPoolExecutor(max(1, self.in_flight // parts)) as pool:
            list(pool.map(self._put, keys))

    def _put(self, key: str) -> None:
        obstore.put(self.store, key, self.data, chunk_size=PART_BYTES_MIN, max_concurrency=PARTS_AT_ONCE - 1)

    def read(self, keys: Sequence[str]) -> None:
        with ThreadPoolExecutor(self.in_flight) as pool:
            if not self.ranges:
                list(pool.map(self._get, keys))
                return
            starts = range(0, self.object_bytes, PART_BYTES_MIN)
            list(pool.map(self._get_range, [(key, start) for key in keys for start in starts]))

    def _get(self, key: str) -> None:
        for _chunk in obstore.get(self.store, key).stream(min_chunk_size=PART_BYTES_MIN):
            pass

    def _get_range(self, where: tuple[str, int]) -> None:
        key, start = where
        end = min(start + PART_BYTES_MIN, self.object_bytes)
        assert len(obstore.get_range(self.store, key, start=start, end=end)) == end - start


def timed(nbytes: int, work: Callable[[Sequence[str]], None], keys: Sequence[str]) -> float:
    """GiB/s of a piece of work."""
    started = time.perf_counter()
    work(keys)
    return nbytes / GIB / (time.perf_counter() - started)


async def timed_backend(nbytes: int, answers: Any) -> float:
    started = time.perf_counter()
    for answer in await answers:
        assert answer.error is None, (answer.error, answer.detail)
    return nbytes / GIB / (time.perf_counter() - started)


async def compare(address: str, in_flight: int, rounds: int, seconds_max: float) -> list[tuple[str, ...]]:
    """A row for each shape and verb."""
    settings = Config(io_size=PART_BYTES_MIN, io_threads=in_flight)
    options = PLUGIN.filled({"endpoint": os.environ.get("AWS_ENDPOINT_URL_S3"), "allow-http": True})
    rows: list[tuple[str, ...]] = []
    for mib, count in SHAPES:
        nbytes = mib * MIB * count
        backend = ObjectBackend(
            BackendContext(
                tier=Tier.STORAGE,
                clock_ns=time.monotonic_ns,
                limit_bytes=nbytes,
                usable_bytes=nbytes,
                unit_bytes=mib * MIB,
                settings=MappingProxyType(dict(settings)),
                addresses=(address,),
                plane=DataPlane(settings.io_size, in_flight),
                options=options,
            )
        )
        await backend.prepare(lambda *_: None)
        plain = Plain(open_stores(address, options).patient, in_flight, mib * MIB, backend.ranges)
        refs = [ObjectRef(f"k{index}", 1, mib * MIB) for index in range(count)]
        keys = [f"plain/{index}" for index in range(count)]
        ours: dict[str, list[float]] = {"write": [], "read": []}
        theirs: dict[str, list[float]] = {"write": [], "read": []}
        try:
            until = time.monotonic() + seconds_max
            for turn in range(rounds + 1):
                for first in (True, False) if turn % 2 else (False, True):
                    if first:
                        found = (
                            await timed_backend(nbytes, backend.write([WriteItem(ref) for ref in refs])),
                            await timed_backend(nbytes, backend.read(refs)),
                        )
                    else:
                        found = (
                            timed(nbytes, plain.write, keys),
                            timed(nbytes, plain.read, keys),
                        )
                    # The first round opens connections and fills buffers.
                    if turn:
                        side = ours if first else theirs
                        side["write"].append(found[0])
                        side["read"].append(found[1])
                if time.monotonic() > until and turn > 2:
                    break
        finally:
            obstore.delete(plain.store, keys)
            await backend.close()
        for verb in ("write", "read"):
            ratio = paired_ratio(ours[verb], theirs[verb])
            figures = (f"{median(ours[verb]):.3f}", f"{median(theirs[verb]):.3f}", str(ratio))
            rows.append((f"{verb} {mib} MiB", *figures, "pass" if ratio.median >= BAR else "FAIL"))
            say("  ".join(rows[-1]))
    return rows


@contextlib.contextmanager
def place(args: argparse.Namespace) -> Iterator[str]:
    """The address to measure: the one that was given, or that of a server started for it."""
    if args.address is not None:
        yield args.address
        return
    reason = why_not(args.server)
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir=args.dir) as folder, serving(args.server, Path(folder)) as server:
        os.environ.update({**server.environ, "AWS_ENDPOINT_URL_S3": server.endpoint})
        yield f"s3://{BUCKET}/benchmark"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="a bucket with a prefix; without it a server is started")
    parser.add_argument("--server", choices=("rclone", "moto"), default="rclone", help="which one")
    parser.add_argument("--dir", help="where a started server keeps its objects; up to 1 GB, removed")
    parser.add_argument("--in-flight", type=int, default=16, help="requests in flight [16]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds-max", type=float, default=60.0, help="for each size of object [60]")
    args = parser.parse_args()
    with place(args) as address:
        rows = asyncio.run(compare(address, args.in_flight, args.rounds, args.seconds_max))
    print(table(("operation", "GiB/s", "plain loop GiB/s", "ratio", f">= {BAR}"), rows))
    return 0 if all(row[-1] == "pass" for row in rows) else 3


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
