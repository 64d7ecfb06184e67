"""Prints the software ceiling: what kvspill does where the device takes no time, and on memory as a disk."""

import argparse
import asyncio
import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.config import Config
from kvspill.run.ceiling import null_ceiling
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.profiles import NULL
from kvspill.world import World, run_real
from lib.machine import end_orderly, is_memory, say, skip, table, wait_quiet
from lib.shape import MIB, operations

GIB = 1 << 30
Row = tuple[str, str, str, str]
Session = Callable[[World], Coroutine[Any, Any, tuple[int, float]]]
OLD_ENTRIES = 64
NULL_SHAPES = ((2 * MIB, 32),)
"""Bytes of an entry and entries in flight; a null backend does not care for bytes."""
TMPFS_SHAPES = ((4096, 32), (256 << 10, 32), (2 * MIB, 8), (32 * MIB, 8))
"""The smallest shows what an operation costs, the largest what a byte costs."""
TMPFS_THREADS = 8
SWITCH_INTERVAL_SECONDS = 0.0005
"""As a run sets it."""


async def drive(
    backend: Backend, op: str, entry_bytes: int, in_flight: int, seconds: float
) -> tuple[int, float]:
    """Entries moved and the seconds it took; what is written is deleted at once, so memory stays bounded."""
    olds = [ObjectRef(f"old{number}", 1, entry_bytes) for number in range(OLD_ENTRIES)]
    check(await backend.write([WriteItem(ref) for ref in olds]))
    ops, until, done = operations(op, OLD_ENTRIES), time.monotonic() + seconds, 0

    async def stream() -> None:
        nonlocal done
        while time.monotonic() < until:
            one = next(ops)
            if one.write:
                ref = ObjectRef(f"fresh{one.number}", 1, entry_bytes)
                check(await backend.write([WriteItem(ref)]))
                check(await backend.delete([ref]))
            else:
                check(await backend.read([olds[one.number]]))
            done += 1

    began = time.monotonic()
    await asyncio.gather(*(stream() for _ in range(in_flight)))
    took = time.monotonic() - began
    check(await backend.delete(olds))
    return done, took


def check(completions: Sequence[Any]) -> None:
    errors = {completion.error for completion in completions} - {None}
    if errors:
        raise RuntimeError(f"operations failed: {errors}")


def driver_rows(
    name: str, make: Callable[[World], Backend], shapes: Sequence[tuple[int, int]], args: argparse.Namespace
) -> list[Row]:
    """One backend driven directly: no workload, no cache, no recorder."""
    rows = []
    for entry_bytes, in_flight in shapes:
        nbytes = f"{entry_bytes // MIB} MiB" if entry_bytes >= MIB else f"{entry_bytes >> 10} KiB"
        for op in ("read", "write", "mix"):
            per_sec = median(repeat(session(make, op, entry_bytes, in_flight, args.seconds), args))
            label = f"{name}: {op} {nbytes} x{in_flight}"
            rows.append((label, f"{per_sec:,.0f}", "-", f"{per_sec * entry_bytes / GIB:,.2f}"))
            say("  ".join(rows[-1]))
    return rows


def session(
    make: Callable[[World], Backend], op: str, entry_bytes: int, in_flight: int, seconds: float
) -> Session:
    async def main(world: World) -> tuple[int, float]:
        backend = make(world)
        await backend.prepare(lambda _what, _done, _total: None)
        try:
            return await drive(backend, op, entry_bytes, in_flight, seconds)
        finally:
            await backend.close()

    return main


def repeat(main: Session, args: argparse.Namespace) -> list[float]:
    """Operations per second, once a round."""
    rates = []
    for _ in range(args.rounds):
        wait_quiet(0.3, args.patience)
        done, took = run_real(main, 1)
        rates.append(done / took)
    return rates


def stack_rows(args: argparse.Namespace) -> list[Row]:
    """The whole stack on the null backend: workload, queue, cache, I/O model and recorder."""
    rows = []
    for model in ("tiny-1b", "llama3.1-8b", "llama3.1-70b-instruct"):
        config = Config(model=model, num_users=50, gpu_mem_gb=0, cpu_mem_gb=0, generation_mode="none")
        serve = functools.partial(null_ceiling, config, seconds=args.seconds)
        found = []
        for _ in range(args.rounds):
            wait_quiet(0.3, args.patience)
            found.append(run_real(serve, 42))
        rows.append(
            (
                f"whole stack on null: {model}",
                f"{median(one.operations_per_sec or 0 for one in found):,.0f}",
                f"{median(one.requests_per_sec or 0 for one in found):,.0f}",
                f"{median(one.gib_per_sec or 0 for one in found):,.0f}",
            )
        )
        say("  ".join(rows[-1]))
    return rows


def run_rows(directory: Path, args: argparse.Namespace) -> list[Row]:
    """`kvspill run` on tmpfs: everything at once, on memory."""
    from kvspill.cli.main import main as kvspill

    rows = []
    for verify in ("off", "stamp"):
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch) / "result.json"
            flags = [
                *(
                    "--model",
                    "tiny-1b",
                    "--num-users",
                    "50",
                    "--servers",
                    "8",
                    "--duration",
                    str(args.run_seconds),
                ),
                *("--generation-mode", "none", "--storage-capacity-gb", "3", "--quiet"),
                *("--gpu-mem-gb", "0", "--cpu-mem-gb", "0"),
                *("--verify", verify, "--cache-dir", str(directory), "--output", str(output)),
            ]
            wait_quiet(0.3, args.patience)
            status = kvspill(["run", *flags])
            if status != 0:
                raise RuntimeError(f"kvspill run ended with status {status}")
            summary = json.loads(output.read_text())["summary"]
        stats = summary["cache_stats"]
        moved = stats["tier_storage_read_bandwidth_gbps"] + stats["tier_storage_write_bandwidth_gbps"]
        rows.append(
            (
                f"kvspill run on tmpfs, verify {verify}",
                f"{stats['read_iops'] + stats['write_iops']:,.0f}",
                f"{summary['requests_per_second']:,.1f}",
                f"{moved:,.2f}",
            )
        )
        say("  ".join(rows[-1]))
    return rows


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tmpfs", type=Path, default=Path("/dev/shm"), help="a tmpfs [/dev/shm]; up to 3 GiB"
    )
    parser.add_argument("--seconds", type=float, default=1, help="per measurement [1]")
    parser.add_argument("--run-seconds", type=float, default=8, help="of the whole runs on tmpfs [8]")
    parser.add_argument("--rounds", type=int, default=3, help="of each, the median is shown [3]")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for a quiet machine [10]")
    return parser.parse_args(argv)


def tmpfs_rows(directory: Path, args: argparse.Namespace) -> list[Row]:
    """The files backend on memory, where its own cost is all there is."""
    plane = DataPlane(MIB, TMPFS_THREADS)
    plane.fill_some(lambda: True)
    rows = []
    for verify in ("off", "stamp"):
        options = FilesOptions(io_size=MIB, io_threads=TMPFS_THREADS, verify=verify)
        make = functools.partial(_files, directory, options, plane)
        rows += driver_rows(f"files on tmpfs, verify {verify}", make, TMPFS_SHAPES, args)
    return rows


def _files(directory: Path, options: FilesOptions, plane: DataPlane, world: World) -> Backend:
    return FilesBackend([directory], options, world.now_ns, plane)


def _null(world: World) -> Backend:
    return ModelledBackend("null", NULL, world.now_ns)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    end_orderly()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    rows = stack_rows(args)
    rows += driver_rows("null backend", _null, NULL_SHAPES, args)
    head = ("what", "operations/s", "requests/s", "GiB/s")
    if not args.tmpfs.is_dir() or not is_memory(args.tmpfs):
        print(table(head, rows))
        return skip(f"{args.tmpfs} is no tmpfs; name one with --tmpfs for the rows on memory")
    with tempfile.TemporaryDirectory(prefix="kvspill-ceiling-", dir=args.tmpfs) as name:
        rows += tmpfs_rows(Path(name), args)
        rows += run_rows(Path(name), args)
    print(table(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
