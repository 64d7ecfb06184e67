"""Shows what the last copy between storage and GPU costs: the same I/O with and without it, in turn."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.machine.gpu import why_unusable
from kvspill.records import Completion
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.dram import DramBackend
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.gpu.backend import GpuBackend, Staged
from lib.machine import end_orderly, say, skip, table
from lib.shape import MIB

GB = 1e9
BAR = 0.95
IN_FLIGHT = 8
SWITCH_INTERVAL_SECONDS = 0.0005
"""As a run sets it."""

One = Callable[[int, int], Awaitable[list[Completion]]]


async def rate(one: One, nbytes: int, seconds: float) -> tuple[float, float]:
    """Bytes per second, and processor seconds per GB, of several entries at once."""
    began, spent, until, turns = time.monotonic(), time.process_time(), time.monotonic() + seconds, 0

    async def stream(number: int) -> None:
        nonlocal turns
        while time.monotonic() < until:
            turns += 1
            errors = {answer.error for answer in await one(number, turns)} - {None}
            if errors:
                raise RuntimeError(f"operations failed: {errors}")

    await asyncio.gather(*(stream(number) for number in range(IN_FLIGHT)))
    moved = turns * nbytes
    return moved / (time.monotonic() - began), (time.process_time() - spent) / moved * GB


class Rig:
    """Two files backends in one directory, of which one delivers to the card, and memory on both sides."""

    def __init__(self, args: argparse.Namespace):
        self.nbytes = args.mib * MIB
        options = FilesOptions(io_threads=args.io_threads, io_engine=args.io_engine, verify=args.verify)
        plane = DataPlane(options.io_size, options.io_threads)
        self.gpu = GpuBackend(
            (2 * IN_FLIGHT + 1) * self.nbytes,
            (args.device,),
            plane=plane,
            staged=Staged(options.io_threads, options.io_size),
        )
        self.dram = DramBackend((IN_FLIGHT + 1) * self.nbytes, plane=plane)
        self.near = FilesBackend([args.directory], options, plane=plane)
        self.far = FilesBackend([args.directory], options, plane=plane)
        self.far.deliver_to(self.gpu.landing())
        self.refs = [ObjectRef(f"e{number}", 1, self.nbytes) for number in range(IN_FLIGHT)]

    @property
    def backends(self) -> Sequence[Backend]:
        return self.near, self.far, self.dram, self.gpu

    async def fill(self) -> None:
        for backend in self.backends:
            await backend.write([WriteItem(ref) for ref in self.refs])

    def reads(self, files: Backend) -> One:
        return lambda number, _turn: files.read([self.refs[number]])

    def writes(self, lender: Backend) -> One:
        async def one(number: int, turn: int) -> list[Completion]:
            source = lender.lend(self.refs[number])
            # The content is the lent object's, whatever the copy is called.
            copy = ObjectRef(f"c{number}", turn, self.nbytes)
            answer = await self.near.write([WriteItem(copy, source)])
            await self.near.delete([copy])
            return answer

        return one


async def compare(args: argparse.Namespace) -> list[tuple[str, ...]]:
    rig = Rig(args)
    async with AsyncExitStack() as stack:
        for backend in rig.backends:
            stack.push_async_callback(backend.close)
            await backend.prepare(lambda *_: None)
        say("; ".join(backend.capabilities.description for backend in (rig.far, rig.gpu)))
        await rig.fill()
        pairs = {
            "storage -> GPU": (rig.reads(rig.far), rig.reads(rig.near)),
            "GPU -> storage": (rig.writes(rig.gpu), rig.writes(rig.dram)),
        }
        rows = []
        for name, (whole, without) in pairs.items():
            found = []
            for turn in range(args.rounds):
                # Each side begins every other round: a disk may be slower after a while of writing.
                sides = (whole, without) if turn % 2 == 0 else (without, whole)
                seen = [await rate(side, rig.nbytes, args.seconds) for side in sides]
                found.append((seen[turn % 2], seen[1 - turn % 2]))
                say(
                    f"{name}: {found[-1][0][0] / GB:.2f} and without the copy {found[-1][1][0] / GB:.2f} GB/s"
                )
            rows.append(_row(name, found))
        facts = rig.gpu.facts()
        say(f"over PCIe: {facts['pcie_load_bytes']:,} bytes in, {facts['pcie_out_bytes']:,} out")
        return rows


Pair = tuple[tuple[float, float], tuple[float, float]]


def _row(name: str, found: Sequence[Pair]) -> tuple[str, ...]:
    ratios = sorted(whole[0] / without[0] for whole, without in found)
    ratio = median(ratios)
    cpu = (median(pair[at][1] for pair in found) for at in (0, 1))
    return (
        name,
        *(f"{median(pair[at][0] for pair in found) / GB:.2f}" for at in (0, 1)),
        f"{ratio:.3f} ({ratios[0]:.3f}-{ratios[-1]:.3f})",
        *(f"{seconds:.3f}" for seconds in cpu),
        f"{BAR:g}",
        "pass" if ratio >= BAR else "MISS",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="a directory on the drive")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--mib", type=int, default=64, help="size of an entry")
    parser.add_argument("--io-threads", type=int, default=32)
    parser.add_argument("--io-engine", choices=("threads", "io_uring"), default="threads")
    parser.add_argument("--verify", choices=("off", "stamp", "full"), default="stamp")
    args = parser.parse_args()
    reason = why_unusable()
    if reason is not None:
        return skip(reason)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    rows = asyncio.run(compare(args))
    heads = (*("way", "GB/s", "without the copy", "ratio", "CPU s/GB", "without", "bar", "verdict"),)
    print(table(heads, rows))
    return 3 if any(row[-1] == "MISS" for row in rows) else 0


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
