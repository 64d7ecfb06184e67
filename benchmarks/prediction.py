"""Holds predictions against real runs: calibrates throttled devices, simulates loads on them, runs them."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvspill.result.reading import load_result

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import throttle
from lib.cases import NAMES, Case, as_data, named, show_cases
from lib.machine import busy_share, end_orderly, prefer, say, skip, wait_quiet

KVSPILL = str(Path(sys.executable).with_name("kvspill"))
DEVICE_BYTES = 8 << 30
KNEE_BAR = 0.10
"""How far the predicted limit of users may be off."""
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
    "mooncake": "--model tiny-1b --engine mooncake-bucket --num-users 20 --arrival closed --cpu-mem-gb 1",
    "vllm-fs": "--model tiny-1b --engine vllm-fs --num-users 20 --arrival closed --cpu-mem-gb 1",
}
LONGER = 3
"""Loads of large entries run so many times as long: they make few requests a minute."""
COMMON = "--seed 42 --storage-capacity-gb 6 --gpu-mem-gb 0 --quiet"
KNEE = (
    f"{TINY} --generation-mode realistic --enable-autoscaling --autoscaler-mode slo --num-users 16"
    " --max-users 64 --slo-target-ms {target_ms}"
)
KNEE_MIB, KNEE_SECONDS = 1380, 1100
"""The target of the knee is the time that the device takes for so much: about 19 users then keep it."""
SHORT = ("--quick", "--duration", "20", "--speeds", "230", "--patience", "1")


def command(words: Sequence[str], device: "Place", limit_seconds: float) -> str:
    """One kvspill command on the device; returns what it printed."""
    done = subprocess.run(
        [KVSPILL, *words], preexec_fn=device.join, capture_output=True, text=True, timeout=limit_seconds
    )
    if done.returncode:
        raise RuntimeError(f"kvspill {words[0]} failed ({done.returncode}): {done.stderr.strip()[-400:]}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Place:
    """A directory to measure in: of a throttled device, or of the bare disk."""

    directory: Path
    throttled: throttle.Throttled | None
    niceness: int

    def join(self) -> None:
        if self.throttled is not None:
            self.throttled.join()
        if self.niceness:
            prefer(self.niceness)


def flags_of(load: str, args: argparse.Namespace) -> list[str]:
    flags = f"{LOADS[load]} {COMMON}".split()
    seconds = args.duration * (LONGER if load.startswith("llama") else 1)
    return flags if "--max-requests" in flags else [*flags, "--duration", f"{seconds:g}"]


def predict_all(cases: Sequence[Case], profile: Path, args: argparse.Namespace) -> None:
    """What `simulate` says of every load, on all processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, found in zip(
            cases, pool.map(lambda case: prediction(case, profile, args), cases), strict=True
        ):
            case.predicted = named({name: one["value"] for name, one in found.items()})
            case.intervals = {NAMES[name]: (one["low"], one["high"]) for name, one in found.items()}


def prediction(case: Case, profile: Path, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Value and interval of each figure."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        flags = [*flags_of(case.load, args), "--device-profile", str(profile), "--output", str(output)]
        subprocess.run([KVSPILL, "simulate", *flags], capture_output=True, check=True)
        found: dict[str, dict[str, float]] = json.loads(output.read_text())["prediction"]["intervals"]
    return {name: one for name, one in found.items() if name in NAMES}


def run_case(case: Case, place: Place, args: argparse.Namespace, number: int) -> None:
    """Run it for real, once more."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        wait_quiet(0.3, args.patience)
        busy = busy_share()
        flags = [*flags_of(case.load, args), "--cache-dir", str(place.directory), "--output", str(output)]
        command(["run", *flags], place, 900)
        case.add(load_result(output))
        if args.keep is not None:
            args.keep.mkdir(exist_ok=True, parents=True)
            name = f"{case.device}-{case.load}-{number}".replace("/", "-").replace(" ", "_")
            (args.keep / f"{name}.json").write_bytes(output.read_bytes())
    requests = case.measured[-1]["requests/s"]
    say(f"{case.device}, {case.load}: {requests:.4g} requests/s (others take {busy:.0%})")


def calibrated(place: Place, folder: Path, name: str, args: argparse.Namespace) -> tuple[Path, float]:
    """A profile of the device as it is now, and how far two calibrations lie apart."""
    import yaml

    speeds = []
    path = folder / f"{name}.yaml"
    for _ in range(2):
        words = ["calibrate", "--cache-dir", str(place.directory), "--output", str(path), "--quiet"]
        command([*words, *(["--quick"] if args.quick else [])], place, 600)
        storage = yaml.safe_load(path.read_text())["storage"]
        speeds.append([storage["read_gib_per_sec"], storage["write_gib_per_sec"]])
    if args.keep is not None:
        args.keep.mkdir(exist_ok=True, parents=True)
        (args.keep / f"{name}.yaml").write_bytes(path.read_bytes())
    apart = max(abs(one / other - 1) for one, other in zip(*speeds, strict=True))
    return path, apart


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="directory for the loop device's file; up to 8 GB, removed")
    parser.add_argument("--speeds", default="120,230,400,200:100", help="MiB/s; READ:WRITE where they differ")
    parser.add_argument("--raw", action="store_true", help="the disk of DIR itself, without a throttle")
    parser.add_argument("--knee", action="store_true", help="the limit of users, not the table of loads")
    parser.add_argument(
        "--loads", default="", help="only loads whose name has one of these texts; with | between"
    )
    parser.add_argument("--rounds", type=int, default=1, help="real runs of each load [1]")
    parser.add_argument("--duration", type=float, default=60, help="seconds of a timed run [60]")
    parser.add_argument("--quick", action="store_true", help="calibrate for 20 s instead of two minutes")
    parser.add_argument("--short", action="store_true", help=f"a table in ten minutes: {shlex.join(SHORT)}")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for a quiet machine [10]")
    parser.add_argument("--niceness", type=int, default=0, help="priority of what is measured, such as -15")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep profiles and results of runs here")
    parser.add_argument("--json", type=Path, help="write every case here")
    args = parser.parse_args(argv)
    if args.short:
        given = list(sys.argv[1:] if argv is None else argv)
        args = parser.parse_args([*SHORT, *given])
    return args


def speeds_of(text: str) -> list[tuple[float, float]]:
    pairs = [word.split(":") for word in text.split(",")]
    return [(float(pair[0]), float(pair[-1])) for pair in pairs]


@dataclass(slots=True)
class Found:
    """What was measured."""

    cases: list[Case] = field(default_factory=list)
    apart: list[tuple[str, float]] = field(default_factory=list)
    knees: list[dict[str, Any]] = field(default_factory=list)


def measure(args: argparse.Namespace) -> Found:
    """Every load, or the limit of users, on every device."""
    found = Found()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        if args.raw:
            on_device(Place(args.dir.resolve(), None, args.niceness), (0.0, 0.0), folder, args, found)
            return found
        with throttle.throttled_device(args.dir.resolve(), DEVICE_BYTES) as device:
            for speeds in speeds_of(args.speeds):
                device.set_speed(*speeds)
                on_device(Place(device.mount, device, args.niceness), speeds, folder, args, found)
    return found


def on_device(
    place: Place, speeds: tuple[float, float], folder: Path, args: argparse.Namespace, found: Found
) -> None:
    """Calibrate, run, then predict: simulations would take the processors from the runs."""
    name = "raw disk" if args.raw else f"{speeds[0]:g}-{speeds[1]:g} MiB/s"
    profile, off = calibrated(place, folder, name.split()[0], args)
    say(f"{name}: two calibrations {off:.1%} apart")
    found.apart.append((name, off))
    if args.knee:
        found.knees.append({"device": name, **knee(place, speeds, profile, args)})
        return
    cases = [
        Case(speeds, load, raw=args.raw)
        for load in LOADS
        if any(text in load for text in args.loads.split("|"))
    ]
    found.cases += cases
    for number in range(args.rounds):
        for case in cases:
            run_case(case, place, args, number)
    say(f"{name}: simulating {len(cases)} loads")
    predict_all(cases, profile, args)
    if args.json:
        args.json.write_text(json.dumps([as_data(case) for case in found.cases], indent=1))


def knee(
    place: Place, speeds: tuple[float, float], profile: Path, args: argparse.Namespace
) -> dict[str, float]:
    """The limit of users by the same search in simulation and on the device."""
    target_ms = round(1000 * KNEE_MIB / (speeds[0] or 1000), -1)
    seconds = f"{max(args.duration, KNEE_SECONDS):g}"
    flags = [*KNEE.format(target_ms=target_ms).split(), *COMMON.split(), "--duration", seconds]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"

        def limit(*words: str) -> dict[str, Any]:
            command([*words, *flags, "--output", str(output)], place, 3600)
            found: dict[str, Any] = json.loads(output.read_text())["summary"]["autoscaling_summary"]
            return found

        predicted = limit("simulate", "--device-profile", str(profile))
        measured = limit("run", "--cache-dir", str(place.directory))
    return {
        "target_ms": target_ms,
        "predicted": predicted["users"],
        "measured": measured["users"],
        "measured_that_failed": measured["next_level_that_failed"],
    }


def show_knee(knee: Mapping[str, Any]) -> bool:
    """One search: True where the prediction is near enough to the most users that kept the target."""
    predicted, measured, failed = (knee[name] for name in ("predicted", "measured", "measured_that_failed"))
    if predicted is None or not measured:
        print(f"{knee['device']}: no verdict ({predicted} predicted, {measured} measured)")
        return False
    good = bool(abs(predicted / measured - 1) <= KNEE_BAR)
    open_still = not good and measured < predicted < (failed or 0)
    verdict = "PASS" if good else "no verdict: the search left that open" if open_still else "MISS"
    print(
        f"{knee['device']}: {predicted} users predicted, {measured} measured ({failed} failed) for "
        f"{knee['target_ms']:g} ms: {predicted / measured - 1:+.1%} {verdict} (<= {KNEE_BAR:.0%})"
    )
    return good


def show(found: Found) -> bool:
    """Print what was found; True where every bar is cleared."""
    good = show_cases(found.cases) if found.cases else True
    for one in found.knees:
        good = show_knee(one) and good
    for name, off in found.apart:
        fine = off <= REPEATED_MAX
        good = good and fine
        verdict = f"{'PASS' if fine else 'MISS'} (<= {REPEATED_MAX:.0%})"
        print(f"{name}: two calibrations {off:.1%} apart: {verdict}")
    return good


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    end_orderly()
    reason = None if args.raw else throttle.missing()
    if reason:
        return skip(reason)
    return 0 if show(measure(args)) else 3


if __name__ == "__main__":
    sys.exit(main())
