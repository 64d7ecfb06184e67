"""Shows that every layout of the files backend moves data as fast as plain files do, measured in turns."""

import argparse
import asyncio
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ceiling import SWITCH_INTERVAL_SECONDS, drive
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from lib.machine import end_orderly, say, table
from lib.shape import MIB

GIB = 1 << 30
BAR = 0.95
LAYOUTS = ("tree", "slots", "buckets")
SHAPES = ((2, 32), (32, 8))
"""MiB of an entry and entries in flight."""
ENTRIES = 160
"""Room for those that are read and those being written."""


async def bandwidth(root: Path, layout: str, op: str, shape: tuple[int, int], seconds: float) -> float:
    """GiB/s of one layout in a run directory of its own."""
    entry_bytes, in_flight = shape[0] * MIB, shape[1]
    options = FilesOptions(
        verify="stamp", layout=layout, unit_bytes=entry_bytes, capacity_bytes=ENTRIES * entry_bytes
    )
    backend = FilesBackend([root], options, plane=DataPlane(options.io_size, options.io_threads))
    await backend.prepare(lambda *_: None)
    try:
        done, took = await drive(backend, op, entry_bytes, in_flight, seconds)
    finally:
        await backend.close()
    return done * entry_bytes / GIB / took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="directory on the device; up to 6 GB, removed")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    rows: list[tuple[str, ...]] = []
    for shape in SHAPES:
        for op in ("read", "write"):
            found: dict[str, list[float]] = {layout: [] for layout in ("files", *args.layouts)}
            for _ in range(args.rounds):
                for layout, rates in found.items():
                    rates.append(asyncio.run(bandwidth(args.dir, layout, op, shape, args.seconds)))
            for layout in args.layouts:
                share = median(
                    ours / plain for ours, plain in zip(found[layout], found["files"], strict=True)
                )
                verdict = "pass" if share >= BAR else "FAIL"
                figures = (f"{median(found[layout]):.2f}", f"{median(found['files']):.2f}", f"{share:.3f}")
                rows.append((f"{layout}: {op} {shape[0]} MiB x{shape[1]}", *figures, verdict))
                say("  ".join(rows[-1]))
    print(table(("layout", "GiB/s", "files GiB/s", "share", f">= {BAR}"), rows))
    return 0 if all(row[-1] == "pass" for row in rows) else 3


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
