"""Does fio do what a run did? A run on a device of known speed, as a job and as a replay, played by fio."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from lib import throttle

DEVICE_BYTES = 3 << 30
MIB = 1 << 20
VERBS = ("read", "write")


def main() -> int:
    """Run, export, play and print the ratios; status 3 where a bandwidth is off by more than 10 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the loop device's file is made")
    parser.add_argument("--throttle", type=float, default=200.0, metavar="MIB_S", help="speed [200]")
    parser.add_argument("--seconds", default="20", help="length of the run [20]")
    args = parser.parse_args()
    reason = throttle.missing()
    if reason is not None:
        print(f"cannot run here: {reason}", file=sys.stderr)
        return 77
    with throttle.throttled_device(args.directory, DEVICE_BYTES) as device:
        device.set_speed(args.throttle)
        work = device.mount.parent
        run(device, work, args.seconds)
        result = json.loads((work / "result.json").read_text())
        asked, seconds = result["honesty"]["bytes"], result["window"]["measured_seconds"]
        own = {"read": asked["asked_read_bytes"], "write": asked["asked_written_bytes"]}
        ratios = [show("job of the result", own, seconds, played(device, work, "result.json"))]
        logged = log_bytes(work / "ops.parquet")
        for title, flags in (("replay of the log", ()), ("replay without times", ("--no-stall",))):
            ratios.append(show(title, *logged, played(device, work, "ops.parquet", *flags)))
    # Without its times a replay is as fast as the device allows, which a run need not be.
    return 0 if all(0.9 <= ratio <= 1.1 for ratio in ratios[:2]) else 3


def kvspill(*words: str) -> list[str]:
    return [sys.executable, "-m", "kvspill.cli.main", *words]


def run(device: throttle.Throttled, work: Path, seconds: str) -> None:
    """A run that keeps the device busy."""
    command = kvspill(
        *("run", "--model", "tiny-1b", "--num-users", "8", "--duration", seconds, "--warmup", "2"),
        *("--arrival", "closed", "--generation-mode", "none", "--cpu-mem-gb", "0", "--gpu-mem-gb", "0"),
        *("--storage-capacity-gb", "1", "--cache-dir", str(device.mount), "--quiet"),
        *("--log-ops", str(work / "ops.parquet"), "--output", str(work / "result.json")),
    )
    subprocess.run(command, check=True, preexec_fn=device.join)


def played(device: throttle.Throttled, work: Path, source: str, *flags: str) -> tuple[dict[str, int], float]:
    """Bytes by verb and seconds of fio's replay of what was exported."""
    job = work / f"{source}.fio"
    wanted = ("export", "fio", str(work / source), "-o", str(job), "--directory", str(device.mount), *flags)
    subprocess.run(kvspill(*wanted), check=True, stdout=subprocess.DEVNULL)
    fio = ["fio", "--output-format=json", str(job)]
    done = subprocess.run(fio, check=True, capture_output=True, text=True, preexec_fn=device.join)
    jobs: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    moved = {verb: sum(one[verb]["io_bytes"] for one in jobs) for verb in VERBS}
    seconds = max(one[verb]["runtime"] for one in jobs for verb in VERBS) / 1000
    for path in device.mount.glob("*.dat"):
        path.unlink()
    return moved, seconds


def log_bytes(path: Path) -> tuple[dict[str, int], float]:
    """Bytes by verb of a log, and the seconds from its first to its last operation."""
    import pyarrow.parquet as pq

    rows = [row for row in pq.read_table(path).to_pylist() if row["error"] is None and row["verb"] in VERBS]
    moved = {verb: sum(row["stored_bytes"] for row in rows if row["verb"] == verb) for verb in VERBS}
    span_ns = max(row["finished_ns"] for row in rows) - min(row["started_ns"] for row in rows)
    return moved, span_ns / 1e9


def show(title: str, own: dict[str, int], own_seconds: float, fio: tuple[dict[str, int], float]) -> float:
    """Print both sides; returns fio's bandwidth over the run's."""
    moved, seconds = fio
    speeds = sum(own.values()) / own_seconds / MIB, sum(moved.values()) / seconds / MIB
    share = {verb: moved[verb] / own[verb] if own[verb] else 1.0 for verb in VERBS}
    print(
        f"{title}: bytes read {share['read']:.4f}, written {share['write']:.4f} of the run's; "
        f"kvspill {speeds[0]:.1f} MiB/s, fio {speeds[1]:.1f} MiB/s, ratio {speeds[1] / speeds[0]:.3f}"
    )
    return speeds[1] / speeds[0]


if __name__ == "__main__":
    sys.exit(main())
