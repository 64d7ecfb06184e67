"""Do the layers of --trace-latency say what iostat and fio say beside them, and what does tracing cost?"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.machine.bpf import BlockTracer
from kvspill.measure.layers import calls_of, layers_block
from lib import bpf, throttle
from lib.machine import end_orderly, say, skip, table, tool_missing, wait_quiet
from lib.stats import paired_ratio

DEVICE_BYTES = 3 << 30
VERBS = ("read", "write")
CLOCK_TOLERANCE, AWAIT_TOLERANCE = 0.02, 0.05
ONE_REQUEST, USUAL = "256KiB", "4MiB"
"""A call of one request is what iostat counts; the usual call is long enough for the cost of tracing it."""
LOADS = {"256 KiB calls": "256KiB", "16 KiB calls": "16KiB"}


@dataclass(frozen=True, slots=True)
class Told:
    """What one load looked like to each witness, by verb: milliseconds on average."""

    own: Mapping[str, float]
    """A call by the program's own clock: kvspill's pieces, fio's completion latency."""
    call: Mapping[str, float]
    below: Mapping[str, float]
    """Of a traced call, the block layer and the device."""
    await_: Mapping[str, float]
    """A request, by iostat."""


def kvspill(*words: str) -> list[str]:
    return [sys.executable, "-m", "kvspill.cli.main", *words]


def run(device: throttle.Throttled, work: Path, seconds: str, io_size: str, *more: str) -> dict[str, Any]:
    """A run on the device; its result."""
    command = kvspill(
        *("run", "--model", "tiny-1b", "--num-users", "6", "--duration", seconds, "--warmup", "0"),
        *("--arrival", "closed", "--generation-mode", "none", "--cpu-mem-gb", "0", "--gpu-mem-gb", "0"),
        *("--storage-capacity-gb", "1", "--io-size", io_size, "--io-threads", "8", "--quiet"),
        *("--cache-dir", str(device.mount), "--output", str(work / "result.json"), *more),
    )
    subprocess.run(command, check=True)
    found: dict[str, Any] = json.loads((work / "result.json").read_text())
    return found


@contextmanager
def iostat(device: str, work: Path) -> Iterator[dict[str, float]]:
    """iostat beside what is done inside; afterwards the mean await by verb, each request counted once."""
    awaits: dict[str, float] = {}
    output = work / "iostat.json"
    with output.open("wb") as sink:
        process = subprocess.Popen(["iostat", "-dxy", "-o", "JSON", device, "1"], stdout=sink)
    try:
        yield awaits
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)
    said = json.loads(output.read_text())["sysstat"]["hosts"][0]["statistics"]
    rows = [row for part in said for row in part["disk"]]
    for verb in VERBS:
        rate, wait = f"{verb[0]}/s", f"{verb[0]}_await"
        awaits[verb] = sum(row[rate] * row[wait] for row in rows) / sum(row[rate] for row in rows)


def told(layers: Mapping[str, Any], own: Mapping[str, float], awaits: Mapping[str, float]) -> Told:
    if layers["lost_lines"]:
        raise RuntimeError(f"bpftrace lost {layers['lost_lines']} lines: the comparison would be void")
    call = {verb: layers[verb]["system_call"]["mean"] for verb in VERBS}
    below = {
        verb: sum(layers[verb]["layers"][name]["mean"] for name in ("block_layer", "device"))
        for verb in VERBS
    }
    return Told(own, call, below, awaits)


def of_kvspill(device: throttle.Throttled, work: Path, seconds: str, io_size: str) -> Told:
    with iostat(device.device, work) as awaits:
        result = run(device, work, seconds, io_size, "--trace-latency")
    layers = result["latency_layers"]
    own = {verb: layers[verb]["own_clock_total_ms"] / layers[verb]["own_clock_calls"] for verb in VERBS}
    return told(layers, own, awaits)


def of_fio(device: throttle.Throttled, work: Path) -> Told:
    """The same load by fio: the job that the result was exported to, under the same tracer."""
    job = work / "job.fio"
    export = kvspill("export", "fio", str(work / "result.json"), "-o", str(job))
    subprocess.run([*export, "--directory", str(device.mount)], check=True, stdout=subprocess.DEVNULL)
    fio = ["fio", "--output-format=json", f"--output={work / 'fio.json'}", str(job)]
    subprocess.run([*fio, "--create_only=1"], check=True, stdout=subprocess.DEVNULL)
    # The shell waits for a line, so that bpftrace knows the process before it begins.
    process = subprocess.Popen(["sh", "-c", 'read _; exec "$@"', "sh", *fio], stdin=subprocess.PIPE)
    try:
        with iostat(device.device, work) as awaits:
            tracer = BlockTracer([bpf.kernel_device(device.mount)], process.pid)
            tracer.wait_ready()
            process.communicate(b"go\n", timeout=600)
            lines = tracer.stop()
    finally:
        process.kill()
        process.wait()
    jobs = json.loads((work / "fio.json").read_text())["jobs"]
    own = {}
    for verb in VERBS:
        parts = [(one[verb]["total_ios"], one[verb]["clat_ns"]["mean"]) for one in jobs]
        own[verb] = sum(count * mean for count, mean in parts) / sum(count for count, _ in parts) / 1e6
    for path in device.mount.glob("*.0"):
        path.unlink()
    return told(layers_block(calls_of(lines), 0, 1 << 63), own, awaits)


def compare(device: throttle.Throttled, work: Path, args: argparse.Namespace) -> bool:
    """Both sides in alternation; prints the ratios and returns whether all are within bounds."""
    sides: dict[str, list[Told]] = {"kvspill": [], "fio": []}
    usual: list[Told] = []
    for number in range(args.rounds):
        wait_quiet(0.3, args.patience)
        usual.append(of_kvspill(device, work, args.seconds, USUAL))
        sides["kvspill"].append(of_kvspill(device, work, args.seconds, ONE_REQUEST))
        sides["fio"].append(of_fio(device, work))
        say(f"round {number + 1} of {args.rounds}")
    rows, good = [], True
    for verb in VERBS:
        for name, rounds in sides.items():
            call, below = ([getattr(one, what)[verb] for one in rounds] for what in ("call", "below"))
            by_clock = paired_ratio([one.own[verb] for one in rounds], call)
            by_iostat = paired_ratio(below, [one.await_[verb] for one in rounds])
            good &= abs(by_iostat.median - 1) <= AWAIT_TOLERANCE
            shown = (f"{median(call):.3f}", str(by_clock), f"{median(below):.3f}", str(by_iostat))
            rows.append((f"{name}, {verb}", *shown))
        ours, theirs = ([one.below[verb] for one in rounds] for rounds in sides.values())
        # Not judged: the job has the run's sizes, mix and depth, but not its bursts.
        rows.append((f"kvspill / fio, {verb}", "", "", str(paired_ratio(ours, theirs)), ""))
        calls = [one.call[verb] for one in usual]
        by_clock = paired_ratio([one.own[verb] for one in usual], calls)
        good &= abs(by_clock.median - 1) <= CLOCK_TOLERANCE
        rows.append((f"kvspill, {verb}, calls of {USUAL}", f"{median(calls):.3f}", str(by_clock), "", ""))
    head = ("what", "traced call ms", "own clock / call", "block layer + device ms", "over iostat's await")
    print(table(head, rows))
    return good


def cost(device: throttle.Throttled, work: Path, args: argparse.Namespace) -> None:
    """The same load with and without tracing, in alternation."""
    rows = []
    for label, io_size in LOADS.items():
        speeds: dict[bool, list[float]] = {True: [], False: []}
        calls: dict[bool, list[float]] = {True: [], False: []}
        tracer: list[float] = []
        rate: list[float] = []
        for number in range(args.rounds):
            for traced in (True, False) if number % 2 else (False, True):
                wait_quiet(0.3, args.patience)
                result = run(device, work, args.seconds, io_size, *(["--trace-latency"] if traced else []))
                asked, seconds = result["honesty"]["bytes"], result["window"]["measured_seconds"]
                speeds[traced].append((asked["asked_read_bytes"] + asked["asked_written_bytes"]) / seconds)
                calls[traced].append(result["summary"]["cache_stats"]["piece_storage_read_mean_ms"])
                if traced:
                    layers = result["latency_layers"]
                    rate.append(sum(layers[verb]["calls"] for verb in VERBS) / seconds)
                    tracer.append(layers["tracer_cpu_seconds"] / seconds)
            say(f"cost of tracing, {label}: round {number + 1} of {args.rounds}")
        bandwidth, latency = (paired_ratio(kind[True], kind[False]) for kind in (speeds, calls))
        rows.append(
            (label, f"{fmean(rate):,.0f}", str(bandwidth), str(latency), f"{median(tracer):.2f} processors")
        )
    print(table(("load", "calls/s", "bandwidth, traced / not", "read call, traced / not", "bpftrace"), rows))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="where the loop device's file is made; 3 GB, removed")
    parser.add_argument("--seconds", default="6", help="per run [6]")
    parser.add_argument("--rounds", type=int, default=5, help="of each side [5]")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for a quiet machine [10]")
    parser.add_argument("--only", choices=("compare", "cost"), help="one of the two tables")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    end_orderly()
    reason = bpf.missing() or throttle.missing()
    reason = reason or tool_missing("iostat", "sysstat") or tool_missing("fio", "fio")
    if reason:
        return skip(reason)
    good = True
    # Not slowed down: the controller would hold bios back before they are queued. Without a journal: iostat
    # counts its writes too.
    with throttle.throttled_device(args.dir.resolve(), DEVICE_BYTES, journal=False) as device:
        work = device.mount.parent
        if args.only != "cost":
            good = compare(device, work, args)
        if args.only != "compare":
            cost(device, work, args)
    return 0 if good else 3


if __name__ == "__main__":
    sys.exit(main())
