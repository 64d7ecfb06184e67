"""Shows three tiers at once, each beside its limit, and holds their bytes against those of a modelled GPU."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dram_speed import plain_copy
from gpu import Plain
from kvspill.machine.gpu import why_unusable
from kvspill.storage.buffers import map_memory
from lib.machine import end_orderly, say, skip, table
from lib.shape import MIB

GIB = 1 << 30
BUDGETS_GIB = {"gpu": 16, "cpu": 32, "storage": 30}
MEMORY_MARGIN_BYTES = GIB
SERVERS, ROUNDS = 8, 3
SAME_SHARE = 0.01
"""Bytes of one server must be equal; where several take requests in turn, who comes first decides what lies
where: the medians of a way may differ by so much, or as runs of the same kind differ from each other."""
LOAD = (
    *("--model", "llama3.1-8b", "--num-users", "100", "--arrival", "closed", "--generation-mode", "none"),
    *("--seed", "42", "--quiet"),
)


def tiers(gpu: int, cpu: int, storage: int) -> tuple[str, ...]:
    """The flags for tiers of so many GiB."""
    sizes = "--gpu-mem-gb", str(gpu), "--cpu-mem-gb", str(cpu)
    return (*sizes, "--storage-capacity-gb", str(storage))


FIXED_WORK = {
    1: (*tiers(4, 4, 20), "--arrival", "open", "--request-rate", "1000000", "--max-requests", "150"),
    SERVERS: (*tiers(*BUDGETS_GIB.values()), "--arrival", "open", "--max-requests", "1500"),
}
"""By the number of servers. One has tiers so small that a few requests go through all of them, each way."""
PIECE_BYTES = 4 * MIB
STORAGE_THREADS = 32
FILE_BYTES = 192 * MIB


def kvspill(directory: Path, *flags: str) -> dict[str, Any]:
    """The result of a run of the load with these flags."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        words = [sys.executable, "-m", "kvspill.cli.main", "run", *LOAD, *flags]
        words += ["--cache-dir", str(directory), "--output", str(output)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode or not output.exists():
            raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
        result: dict[str, Any] = json.loads(output.read_text())
        return result


def plain_storage(directory: Path) -> tuple[float, float]:
    """GiB/s read and written by direct I/O of threads alone, of new files."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        paths = [Path(folder) / str(index) for index in range(STORAGE_THREADS)]
        written = _by_threads(paths, True)
        return _by_threads(paths, False), written


def _by_threads(paths: Sequence[Path], write: bool) -> float:
    """A thread for each file; GiB/s."""

    def work(path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        memory, move = map_memory(PIECE_BYTES), os.pwritev if write else os.preadv
        memory[:] = 1
        if write:
            os.posix_fallocate(fd, 0, FILE_BYTES)
        for place in range(0, FILE_BYTES, PIECE_BYTES):
            move(fd, [memory.data], place)
        os.close(fd)

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(paths) * FILE_BYTES / GIB / (time.monotonic() - began)


def limits(directory: Path, device: int, seconds: float) -> dict[str, float]:
    """What each way gives by itself, in GiB/s."""
    plain, (read, written) = Plain(device), plain_storage(directory)
    found = {
        "hbm": plain.inside(256 * MIB) / GIB,
        "in": plain.inward(64 * MIB) / GIB,
        "out": plain.outward(64 * MIB) / GIB,
        "dram": plain_copy(len(os.sched_getaffinity(0)))(seconds),
        "read": read,
        "write": written,
    }
    plain.card.close()
    return found


def rows(result: dict[str, Any], limit: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """Each way: over the window, while it was at work, beside its limit."""

    def value(name: str) -> float:
        return float(result["metrics"][name]["value"] or 0.0)

    def row(name: str, over_window: float | None, at_work: float | None, most: float) -> tuple[str, ...]:
        cells = ("-" if speed is None else f"{speed:,.2f}" for speed in (over_window, at_work))
        reached = at_work if at_work is not None else over_window
        return (name, *cells, f"{most:,.2f}", "-" if reached is None else f"{reached / most:.2f}")

    dram_ms = value("cpu_read_ops") * value("cpu_read_device_mean_ms")
    dram = value("tier_cpu_kv_bytes_read_gb") / dram_ms * 1000 if dram_ms else None
    link = {way: value(f"gpu_pcie_{way}_device_gib_per_sec") or None for way in ("in", "load", "out")}
    hits, puts = (value(f"tier_gpu_{verb}_bandwidth_gbps") for verb in ("read", "write"))
    yield row("GPU reads (in its memory)", hits, value("gpu_hbm_read_device_gib_per_sec"), limit["hbm"])
    yield row("GPU writes (PCIe)", puts, link["in"], limit["in"])
    yield row("GPU to DRAM (PCIe)", value("tier_cpu_write_bandwidth_gbps"), link["out"], limit["out"])
    yield row("storage to GPU (PCIe)", None, link["load"], limit["in"])
    yield row("DRAM reads", value("tier_cpu_read_bandwidth_gbps"), dram, limit["dram"])
    read, written = (value(f"tier_storage_{verb}_bandwidth_gbps") for verb in ("read", "write"))
    yield row("storage reads", read, None, limit["read"])
    yield row("storage writes", written, None, limit["write"])
    both = read / limit["read"] + written / limit["write"]
    yield ("storage, both", f"{read + written:,.2f}", "-", "-", f"{both:.2f}")


def moved(result: dict[str, Any]) -> dict[str, float]:
    """KV bytes of every tier, in GiB."""
    names = (f"tier_{tier}_kv_bytes_{verb}_gb" for tier in BUDGETS_GIB for verb in ("read", "written"))
    return {name: float(result["metrics"][name]["value"] or 0.0) for name in names}


Moved = Sequence[dict[str, float]]
"""The bytes of several runs of one kind."""


def furthest(real: Moved, modelled: Moved, allowed: float) -> tuple[float, bool]:
    """How far the bytes of any way are off those of a modelled GPU, by medians, and whether all are the same.

    How far runs of one kind are apart is said beside it: it explains a miss and excuses none. A way that
    moved nothing was not compared.
    """
    most, same = 0.0, True
    for name in real[0]:
        ours, model = ([run[name] for run in runs] for runs in (real, modelled))
        if not median(ours) or not median(model):
            return math.inf, False
        off = abs(median(ours) / median(model) - 1)
        spread = max((max(kind) - min(kind)) / median(kind) for kind in (ours, model))
        say(f"{name}: real {ours}, modelled {model}: {off:.2%} off, {spread:.2%} among runs of one kind")
        most, same = max(most, off), same and off <= allowed
    return most, same


def same_work(directory: Path, servers: int, rounds: int) -> tuple[Moved, Moved]:
    """The bytes of the same requests with a real and a modelled GPU, in turn."""
    flags = *FIXED_WORK[servers], "--servers", str(servers)
    real, modelled = [], []
    for _ in range(rounds):
        real.append(moved(kvspill(directory, *flags, "--gpu-tier", "real")))
        modelled.append(moved(kvspill(directory, *flags, "--gpu-tier", "modelled")))
    return real, modelled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="a directory on the drive, with 40 GB free")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=45.0, help="of the load [%(default)s]")
    parser.add_argument(
        "--bytes-in", type=Path, help="directory of the runs whose bytes are compared; memory is quicker"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of several servers [%(default)s]")
    args = parser.parse_args()
    reason = why_unusable()
    if reason is not None:
        return skip(reason)
    limit = limits(args.directory, args.device, 3.0)
    result = kvspill(args.directory, *tiers(*BUDGETS_GIB.values()), "--duration", str(args.seconds))
    print(table(("way", "GiB/s", "while at work", "limit", "ratio"), list(rows(result, limit))))
    honesty = result["honesty"]
    resident, most = honesty["peak_resident_bytes"], BUDGETS_GIB["cpu"] * GIB + MEMORY_MARGIN_BYTES
    fits = resident < most
    print(f"\nresident {resident / GIB:.2f} of {most / GIB:.0f} GiB: {'pass' if fits else 'MISS'}")
    print(f"{honesty['cpu_seconds_per_gib']:.3f} CPU seconds per GiB")
    passed = [fits]
    for servers, rounds, allowed in ((1, 1, 0.0), (SERVERS, args.rounds, SAME_SHARE)):
        off, same = furthest(*same_work(args.bytes_in or args.directory, servers, rounds), allowed)
        passed.append(same)
        verdict = "pass" if same else "MISS"
        print(f"bytes beside a modelled GPU, --servers {servers}: at most {off:.2%} off: {verdict}")
    return 0 if all(passed) else 3


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
