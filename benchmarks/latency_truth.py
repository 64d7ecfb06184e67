"""Holds kvspill's device latency against the time of its system calls as bpftrace sees them."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.measure.statistics import percentile
from lib import bpf
from lib.machine import end_orderly, say, skip, table, wait_quiet
from lib.peer import IoOptions, Kvspill, scratch
from lib.shape import MIB, Cell

TOLERANCE = 0.05
TINY_BYTES = 64 << 10
"""Below this a call is the worker's warm-up, not a piece."""
BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: calls, mean and p95 as kvspill reports and as bpftrace saw them, in milliseconds."""

    label: str
    calls: int | None
    """None where the result does not say."""
    calls_seen: int
    mean_ms: float
    mean_seen_ms: float
    p95_ms: float
    p95_seen_ms: float
    block: str

    @property
    def off(self) -> tuple[float, float]:
        return self.mean_ms / self.mean_seen_ms - 1, self.p95_ms / self.p95_seen_ms - 1

    @property
    def good(self) -> bool:
        return all(abs(off) <= TOLERANCE for off in self.off)

    def words(self) -> tuple[str, ...]:
        mean_off, p95_off = self.off
        return (
            self.label,
            f"{'-' if self.calls is None else self.calls}/{self.calls_seen}",
            f"{self.mean_ms:.3f}/{self.mean_seen_ms:.3f}",
            f"{mean_off:+.2%}",
            f"{self.p95_ms:.3f}/{self.p95_seen_ms:.3f}",
            f"{p95_off:+.2%}",
            self.block,
            "PASS" if self.good else "MISS",
        )


HEAD = (
    "what",
    "calls kvspill/bpf",
    "mean ms kvspill/bpf",
    "off by",
    "p95 ms kvspill/bpf",
    "off by",
    "block layer mean, p95 (device) ms",
    "verdict (within 5%)",
)


def block_text(seen: bpf.Seen, *verbs: str) -> str:
    """The block layer's requests of these verbs, of which a call of some MiB may make several."""
    texts = []
    for layer in (seen.block, seen.device):
        durations = [duration for verb in verbs for duration in layer[verb]]
        if not durations:
            texts.append("not seen")
            continue
        texts.append(f"{fmean(durations) / 1e6:.3f}, {percentile(durations, 95) / 1e6:.3f}")
    return f"{texts[0]} ({texts[1]})"


def compare_cell(root: Path, worker: Kvspill, cell: Cell, seconds: float) -> Row:
    with bpf.watch(worker.pid, root, TINY_BYTES) as seen:
        measured, beside = worker.measure(cell, seconds)
    check_lost(seen)
    return Row(
        cell.label,
        measured.pieces,
        len(seen.calls),
        beside["all_mean_ns"] / 1e6,
        fmean(seen.calls) / 1e6,
        beside["all_p95_ns"] / 1e6,
        percentile(seen.calls, 95) / 1e6,
        block_text(seen, "read", "write"),
    )


def compare_run(root: Path, requests: int) -> list[Row]:
    """A whole run of the command: the figures of its result file, reads and writes apart."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "result.json"
        flags = (
            f"run --model tiny-1b --num-users 50 --servers 8 --max-requests {requests} --cpu-mem-gb 0 "
            f"--generation-mode none --storage-capacity-gb 4 --quiet --cache-dir {root} --output {output}"
        )
        command = Path(sys.executable).with_name("kvspill")
        # The shell waits for a line, so that bpftrace knows the process before it begins.
        process = subprocess.Popen(
            ["sh", "-c", f"read _; exec {command} {flags}"], stdin=subprocess.PIPE, cwd=directory
        )
        assert process.stdin is not None
        with bpf.watch(process.pid, root, BLOCK_BYTES) as seen:
            process.communicate(b"go\n", timeout=300)
        if process.returncode != 0:
            raise RuntimeError(f"kvspill run ended with status {process.returncode}")
        check_lost(seen)
        stats: dict[str, Any] = json.loads(output.read_text())["summary"]["cache_stats"]
    return [
        Row(
            f"run, {verb} pieces",
            None,
            len(calls),
            stats[f"piece_storage_{verb}_mean_ms"],
            fmean(calls) / 1e6,
            stats[f"piece_storage_{verb}_p95_ms"],
            percentile(calls, 95) / 1e6,
            block_text(seen, verb),
        )
        for verb, calls in (("read", seen.read), ("write", seen.write))
    ]


def check_lost(seen: bpf.Seen) -> None:
    if seen.lost:
        raise RuntimeError(f"bpftrace lost {seen.lost} events: the comparison would be void; run it again")
    if not seen.calls:
        raise RuntimeError("bpftrace saw no call: the I/O engine does not use pread or pwrite")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="directory on the device to watch; up to 6 GB, removed")
    parser.add_argument("--seconds", type=float, default=2, help="per cell [2]")
    parser.add_argument("--requests", type=int, default=30, help="of the whole run [30]")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for a quiet machine [10]")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    end_orderly()
    reason = bpf.missing()
    if reason:
        return skip(reason)
    root = args.dir.resolve()
    rows = []
    shapes = ((2, 1, MIB), (2, 32, 2 * MIB), (32, 8, 4 * MIB))
    for size, in_flight, io_size in shapes:
        with Kvspill(root, IoOptions(io_size)) as worker, scratch(root) as keep:
            worker.populate(size * MIB, (1 << 30) // (size * MIB), keep)
            for op in ("read", "write", "mix"):
                wait_quiet(0.3, args.patience)
                rows.append(
                    compare_cell(root, worker, Cell(op, size * MIB, in_flight, io_size), args.seconds)
                )
                say("  ".join(rows[-1].words()))
    rows += compare_run(root, args.requests)
    print(table(HEAD, [row.words() for row in rows]))
    return 0 if all(row.good for row in rows) else 3


if __name__ == "__main__":
    sys.exit(main())
