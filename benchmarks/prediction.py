"""Holds predictions against real runs: calibrates throttled devices, simulates loads on them, runs them."""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import throttle
from lib.machine import busy_share, end_orderly, say, skip, table, wait_quiet

DEVICE_BYTES = 12 << 30
SHARE_WITHIN = 0.95
BARS = {
    "read bandwidth": 0.05,
    "requests/s": 0.05,
    "tokens/s": 0.05,
    "read p50": 0.10,
    "read p95": 0.10,
    "e2e p50": 0.10,
    "e2e p95": 0.10,
    "hit rate": 0.01,
}
"""How far a prediction may be off."""
REPEATED_MAX = 0.03
"""How far two calibrations of one device may lie apart."""
TINY = "--model tiny-1b --tensor-parallel 4 --generation-mode none --cpu-mem-gb 0"
LLAMA = "--model llama3.1-8b --generation-mode fast"
LOADS: dict[str, str] = {
    "1 user": f"{TINY} --num-users 1 --arrival closed",
    "2 users, closed": f"{TINY} --num-users 2 --arrival closed --generation-mode fast",
    "5 users, closed": f"{TINY} --num-users 5 --arrival closed",
    "10 users, closed": f"{TINY} --num-users 10 --arrival closed",
    "20 users, closed": f"{TINY} --num-users 20 --arrival closed",
    "50 users, closed": f"{TINY} --num-users 50 --arrival closed",
    "10 users, open": f"{TINY} --num-users 10",
    "50 users, open": f"{TINY} --num-users 50",
    "50 users, 8 servers": f"{TINY} --num-users 50 --servers 8",
    "2 requests/s": f"{TINY} --num-users 20 --request-rate 2 --rate-process poisson",
    "fixed work": f"{TINY} --num-users 20 --servers 8 --max-requests 60",
    "fixed work, closed": f"{TINY} --num-users 10 --arrival closed --max-requests 60",
    "8 I/O threads": f"{TINY} --num-users 20 --arrival closed --io-threads 8",
    "16 I/O threads": f"{TINY} --num-users 20 --arrival closed --io-threads 16",
    "1 MiB pieces": f"{TINY} --num-users 20 --arrival closed --io-size 1MiB",
    "8 write threads": f"{TINY} --num-users 20 --arrival closed --write-threads 8",
    "behind DRAM": f"{TINY} --num-users 20 --arrival closed --cpu-mem-gb 0.25",
    "behind DRAM, open": f"{TINY} --num-users 30 --cpu-mem-gb 0.25",
    "llama, 2 users": f"{LLAMA} --num-users 2 --arrival closed --cpu-mem-gb 0",
    "llama, 5 users": f"{LLAMA} --num-users 5 --arrival closed --cpu-mem-gb 0 --generation-mode none",
    "llama, 6 users, DRAM": f"{LLAMA} --num-users 6 --arrival closed --cpu-mem-gb 4",
    "prefix": "--model tiny-1b --io-model prefix --num-users 20 --arrival closed --cpu-mem-gb 0",
    "prefix, DRAM": "--model tiny-1b --io-model prefix --num-users 30 --arrival closed --cpu-mem-gb 1",
    "llm-d": "--model tiny-1b --engine llm-d --num-users 20 --arrival closed --cpu-mem-gb 1",
    "vllm-fs": "--model tiny-1b --engine vllm-fs --num-users 20 --arrival closed --cpu-mem-gb 1",
}
COMMON = "--seed 42 --storage-capacity-gb 6 --quiet"


@dataclass(slots=True)
class Case:
    """One load on one device."""

    speeds: tuple[float, float]
    load: str
    predicted: dict[str, float] = field(default_factory=dict)
    measured: list[dict[str, float]] = field(default_factory=list)

    def middle(self, name: str) -> float:
        return median(one[name] for one in self.measured)

    def error(self, name: str) -> float:
        """How far the prediction is off; of the hit rate in points."""
        real = self.middle(name)
        if name == "hit rate":
            return self.predicted[name] - real
        return self.predicted[name] / real - 1 if real else (0.0 if not self.predicted[name] else math.inf)

    def spread(self, name: str) -> float:
        values = [one[name] for one in self.measured]
        return (max(values) - min(values)) / 2 / (median(values) or 1.0)


def command(words: Sequence[str], device: throttle.Throttled | None, limit_seconds: float) -> None:
    """One kvspill command, under the throttle where a device is given."""
    kvspill = str(Path(sys.executable).with_name("kvspill"))
    joined = None if device is None else device.join
    done = subprocess.run(
        [kvspill, *words], preexec_fn=joined, capture_output=True, text=True, timeout=limit_seconds
    )
    if done.returncode != 0:
        raise RuntimeError(f"kvspill {words[0]} failed ({done.returncode}): {done.stderr.strip()[-400:]}")


def figures(result: Mapping[str, Any]) -> dict[str, float]:
    summary, stats = result["summary"], result["summary"]["cache_stats"]
    return {
        "read bandwidth": stats["tier_storage_read_bandwidth_gbps"],
        "requests/s": summary["requests_per_second"],
        "tokens/s": summary["avg_throughput_tokens_per_sec"],
        "read p50": stats.get("storage_read_p50_ms") or 0.0,
        "read p95": stats.get("storage_read_p95_ms") or 0.0,
        "e2e p50": summary["end_to_end_latency_ms"]["p50"],
        "e2e p95": summary["end_to_end_latency_ms"]["p95"],
        "hit rate": stats["cache_hit_rate"],
    }


def run_case(case: Case, device: throttle.Throttled, profile: Path, args: argparse.Namespace) -> None:
    """Simulate it once, run it several times."""
    flags = f"{LOADS[case.load]} {COMMON}".split()
    if "--max-requests" not in flags:
        flags += ["--duration", str(args.duration)]
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "result.json")
        if not case.predicted:
            command(["simulate", *flags, "--device-profile", str(profile), "--output", output], None, 600)
            simulated = json.loads(Path(output).read_text())
            case.predicted = figures(simulated)
        wait_quiet(0.3, args.patience)
        busy = busy_share()
        command(["run", *flags, "--cache-dir", str(device.mount), "--output", output], device, 900)
        measured = json.loads(Path(output).read_text())
    case.measured.append(figures(measured))
    worst = max(BARS, key=lambda name: abs(case.error(name)) / BARS[name])
    say(
        f"{case.speeds[0]:g}/{case.speeds[1]:g} MiB/s, {case.load}: worst {worst} {case.error(worst):+.1%} "
        f"({case.predicted[worst]:.4g} against {case.middle(worst):.4g}; others take {busy:.0%})"
    )


def calibrated(device: throttle.Throttled, folder: Path, name: str, quick: bool) -> tuple[Path, float]:
    """A profile of the device as it is throttled now, and how far two calibrations lie apart."""
    import yaml

    speeds = []
    path = folder / f"{name}.yaml"
    for _ in range(2):
        words = ["calibrate", "--cache-dir", str(device.mount), "--output", str(path), "--quiet"]
        command([*words, *(["--quick"] if quick else [])], device, 600)
        storage = yaml.safe_load(path.read_text())["storage"]
        speeds.append([storage["read_gib_per_sec"], storage["write_gib_per_sec"]])
    apart = max(abs(one / other - 1) for one, other in zip(*speeds, strict=True))
    return path, apart


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="directory for the loop device's file; up to 12 GB, removed")
    parser.add_argument("--speeds", default="120,230,400,200:100", help="MiB/s; READ:WRITE where they differ")
    parser.add_argument("--loads", default="", help="only loads whose name has this text")
    parser.add_argument("--rounds", type=int, default=1, help="real runs of each load [1]")
    parser.add_argument("--duration", type=float, default=60, help="seconds of a timed run [60]")
    parser.add_argument("--quick", action="store_true", help="calibrate for 20 s instead of two minutes")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for a quiet machine [10]")
    parser.add_argument("--json", type=Path, help="write every case here")
    return parser.parse_args(argv)


def speeds_of(text: str) -> list[tuple[float, float]]:
    pairs = [word.split(":") for word in text.split(",")]
    return [(float(pair[0]), float(pair[-1])) for pair in pairs]


def measure(args: argparse.Namespace) -> tuple[list[Case], list[tuple[str, float]]]:
    """Every load on every device; rounds go over all loads in turn."""
    cases, apart = [], []
    with (
        throttle.throttled_device(args.dir.resolve(), DEVICE_BYTES) as device,
        tempfile.TemporaryDirectory() as folder,
    ):
        for read, write in speeds_of(args.speeds):
            device.set_speed(read, write)
            name = f"{read:g}-{write:g}"
            profile, off = calibrated(device, Path(folder), name, args.quick)
            say(f"{name} MiB/s: two calibrations {off:.1%} apart")
            apart.append((name, off))
            here = [Case((read, write), load) for load in LOADS if args.loads in load]
            for _ in range(args.rounds):
                for case in here:
                    run_case(case, device, profile, args)
            cases += here
            if args.json:
                args.json.write_text(json.dumps([as_data(case) for case in cases], indent=1))
    return cases, apart


def as_data(case: Case) -> dict[str, Any]:
    return {"speeds": case.speeds, "load": case.load, "predicted": case.predicted, "measured": case.measured}


def show(cases: Sequence[Case], apart: Sequence[tuple[str, float]]) -> bool:
    """Print the table of errors; True where every bar is cleared."""
    rows, missed, count = [], [], 0
    for case in cases:
        words = [f"{case.speeds[0]:g}/{case.speeds[1]:g}", case.load]
        for name, bar in BARS.items():
            error = case.error(name)
            count += 1
            good = abs(error) <= bar
            words.append(f"{error:+.1%}{'' if good else ' !'}")
            if not good:
                spread = f", {case.spread(name):.1%} between runs" if len(case.measured) > 1 else ""
                at = f"{case.predicted[name]:.4g} predicted, {case.middle(name):.4g} measured{spread}"
                missed.append(f"{words[0]} MiB/s, {case.load}: {name} off by {error:+.1%} ({at})")
        rows.append(words)
    print(table(("MiB/s", "load", *BARS), rows))
    share = 1 - len(missed) / max(1, count)
    good = share >= SHARE_WITHIN
    print(
        f"{share:.1%} of {count} cells within their bars: {'PASS' if good else 'MISS'} ({SHARE_WITHIN:.0%})"
    )
    for text in missed:
        print(f"  {text}")
    for name, off in apart:
        fine = off <= REPEATED_MAX
        good = good and fine
        verdict = f"{'PASS' if fine else 'MISS'} (<= {REPEATED_MAX:.0%})"
        print(f"{name} MiB/s: two calibrations {off:.1%} apart: {verdict}")
    return good


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    end_orderly()
    reason = throttle.missing()
    if reason:
        return skip(reason)
    return 0 if show(*measure(args)) else 3


if __name__ == "__main__":
    sys.exit(main())
