"""Runs one workload on throttled devices of known ratios and prints how each metric reproduces the ratio."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import throttle
from lib.machine import end_orderly, say, skip, table, tool_missing, wait_quiet
from lib.peer import IoOptions, Kvspill, run_fio, scratch, settle
from lib.shape import MIB, Cell

DEVICE_BYTES = 8 << 30
CAPACITY_GIB = 4
FIXED_TOLERANCE, TIMED_TOLERANCE, VARIATION_MAX = 0.05, 0.10, 0.03
REFERENCE = Cell("read", 32 * MIB, 8)
"""What fio does on each speed: the workload reads twelve bytes for each it writes, so reads set its pace."""
OLD_ENTRIES = 16
METRICS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "completion time": lambda summary: summary["elapsed_time"],
    "tier bandwidth": lambda summary: (
        summary["cache_stats"]["tier_storage_read_bandwidth_gbps"]
        + summary["cache_stats"]["tier_storage_write_bandwidth_gbps"]
    ),
    "wall-clock tok/s": lambda summary: summary["avg_throughput_tokens_per_sec"],
    "storage tok/s": lambda summary: summary["storage_throughput_tokens_per_sec"],
}


@dataclass(slots=True)
class AtSpeed:
    """Everything measured on one speed."""

    mib_per_sec: float
    fio_bandwidth: list[float] = field(default_factory=list)
    fixed: list[dict[str, float]] = field(default_factory=list)
    timed: list[dict[str, float]] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)


def load_flags(args: argparse.Namespace) -> list[str]:
    """More requests waiting than servers at any time: the device alone decides how fast they are served."""
    return [
        *("--model", "tiny-1b", "--tensor-parallel", str(args.tensor_parallel), "--num-users", "200"),
        *("--servers", "8", "--generation-mode", "none", "--seed", "42"),
        *("--gpu-mem-gb", "0", "--cpu-mem-gb", "0"),
        *("--storage-capacity-gb", str(CAPACITY_GIB), "--quiet"),
    ]


def kvspill_run(device: throttle.Throttled, flags: Sequence[str], limit_seconds: float) -> dict[str, Any]:
    """One run of the command, under the throttle; its result file."""
    with tempfile.TemporaryDirectory() as scratch_directory:
        output = Path(scratch_directory) / "result.json"
        command = [str(Path(sys.executable).with_name("kvspill")), "run", *flags]
        done = subprocess.run(
            [*command, "--cache-dir", str(device.mount), "--output", str(output)],
            preexec_fn=device.join,
            capture_output=True,
            text=True,
            timeout=limit_seconds,
            cwd=scratch_directory,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kvspill run failed ({done.returncode}): {done.stderr.strip()[-400:]}")
        result: dict[str, Any] = json.loads(output.read_text())
    if result["incomplete"]:
        raise RuntimeError("kvspill run was incomplete")
    return result


def metrics_of(result: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(read(result["summary"])) for name, read in METRICS.items()}


def measure(args: argparse.Namespace, device: throttle.Throttled, speeds: Sequence[float]) -> list[AtSpeed]:
    """Rounds over all speeds in turn, so that what changes on the machine meets every speed."""
    answers = [AtSpeed(speed) for speed in speeds]
    flags = load_flags(args)
    with Kvspill(device.mount, IoOptions(REFERENCE.io_size)) as worker, scratch(device.mount) as keep:
        old = worker.populate(REFERENCE.entry_bytes, OLD_ENTRIES, keep)
        for number in range(args.rounds):
            for at in answers:
                wait_quiet(0.3, args.patience)
                began = time.monotonic()
                device.set_speed(at.mib_per_sec)
                fio = run_fio("psync", REFERENCE, device.mount, old, 0, args.fio_seconds, device.join)
                at.fio_bandwidth.append(fio.bandwidth)
                fixed = kvspill_run(device, [*flags, "--max-requests", str(args.requests)], 600)
                at.fixed.append(metrics_of(fixed))
                at.digests.add(fixed["digest"])
                settle(device.mount)
                if number < args.timed_rounds:
                    timed = kvspill_run(
                        device, [*flags, "--duration", str(args.duration)], args.duration + 60
                    )
                    at.timed.append(metrics_of(timed))
                    settle(device.mount)
                say(
                    f"round {number + 1}/{args.rounds} at {at.mib_per_sec:g} MiB/s: fio "
                    f"{fio.bandwidth / MIB:.0f} MiB/s, fixed work {at.fixed[-1]['completion time']:.1f} s "
                    f"({time.monotonic() - began:.0f} s in all)"
                )
    return answers


def ratio_rows(slow: AtSpeed, fast: AtSpeed) -> list[tuple[list[str], bool]]:
    """A row per metric and kind of run: the ratio it shows against the ratio that fio measured."""
    truth = median(fast.fio_bandwidth) / median(slow.fio_bandwidth)
    rows = []
    for kind, tolerance in (("fixed", FIXED_TOLERANCE), ("timed", TIMED_TOLERANCE)):
        few, many = getattr(slow, kind), getattr(fast, kind)
        for name in METRICS if few else ():
            if kind == "timed" and name == "completion time":
                continue
            ratio = median(one[name] for one in many) / median(one[name] for one in few)
            ratio = 1 / ratio if name == "completion time" else ratio
            off = ratio / truth - 1
            good = abs(off) <= tolerance
            speeds = f"{fast.mib_per_sec:g}/{slow.mib_per_sec:g}"
            words = [speeds, f"{truth:.3f}", kind, name, f"{ratio:.3f}", f"{off:+.1%}"]
            rows.append(([*words, f"{'PASS' if good else 'MISS'} (within {tolerance:.0%})"], good))
    return rows


def variation_rows(answers: Sequence[AtSpeed]) -> list[tuple[list[str], bool]]:
    rows = []
    for at in answers:
        for name in METRICS if len(at.fixed) >= 2 else ():
            values = [one[name] for one in at.fixed]
            spread = stdev(values) / fmean(values)
            good = spread <= VARIATION_MAX
            words = [f"{at.mib_per_sec:g}", name, str(len(values)), f"{median(values):.4g}", f"{spread:.2%}"]
            rows.append(([*words, f"{'PASS' if good else 'MISS'} (<= {VARIATION_MAX:.0%})"], good))
    return rows


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="directory for the loop device's file; up to 8 GB, removed")
    parser.add_argument("--slow", type=float, default=150, help="slowest speed in MiB/s [150]")
    parser.add_argument("--ratios", default="2,4,4.7", help="how much faster the others are [2,4,4.7]")
    parser.add_argument("--rounds", type=int, default=5, help="runs of the fixed work per speed [5]")
    parser.add_argument("--timed-rounds", type=int, default=1, help="of these, rounds with a timed run [1]")
    parser.add_argument("--requests", type=int, default=100, help="requests of the fixed work [100]")
    parser.add_argument("--duration", type=float, default=40, help="seconds of a timed run [40]")
    parser.add_argument("--tensor-parallel", type=int, default=4, help="divides the entries' size [4]")
    parser.add_argument("--fio-seconds", type=float, default=6, help="of the reference run [6]")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for a quiet machine [10]")
    parser.add_argument("--json", type=Path, help="write every measurement here")
    return parser.parse_args(argv)


def show(answers: Sequence[AtSpeed], requests: int) -> bool:
    """Print both tables; True where every bar is cleared."""
    digests = set().union(*(at.digests for at in answers))
    same = "the same digest in all runs" if len(digests) == 1 else f"{len(digests)} DIFFERENT digests"
    print(f"fixed work: {requests} requests, {same}")
    rows = [row for fast in answers[1:] for row in ratio_rows(answers[0], fast)]
    head = ("MiB/s", "fio's ratio", "run", "metric", "ratio", "off by", "verdict")
    print(table(head, [words for words, _ in rows]))
    spread = variation_rows(answers)
    if spread:
        print("spread of the fixed work, same seed:")
        print(table(("MiB/s", "metric", "runs", "median", "CV", "verdict"), [words for words, _ in spread]))
    return len(digests) == 1 and all(good for _, good in rows + spread)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    end_orderly()
    reason = tool_missing("fio", "fio") or throttle.missing()
    if reason:
        return skip(reason)
    speeds = [args.slow, *(args.slow * float(ratio) for ratio in args.ratios.split(","))]
    with throttle.throttled_device(args.dir.resolve(), DEVICE_BYTES) as device:
        answers = measure(args, device, speeds)
    good = show(answers, args.requests)
    if args.json:
        names = ("mib_per_sec", "fio_bandwidth", "fixed", "timed")
        kept = [{name: getattr(at, name) for name in names} for at in answers]
        args.json.write_text(json.dumps(kept, indent=1))
    return 0 if good else 3


if __name__ == "__main__":
    sys.exit(main())
