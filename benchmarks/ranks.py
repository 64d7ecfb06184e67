"""Prints what several ranks reach together: on memory as a disk, or on a device of a known speed."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import throttle
from lib.machine import end_orderly, say, skip, table, tool_missing, wait_quiet

LOAD = """\
model: tiny-1b
arrival: closed
generation_mode: none
gpu_mem_gb: 0
cpu_mem_gb: 0
warmup: 2
personas:
  chatbot: {context: [512, 2048], generate: [64, 256], think: [0.0, 0.001]}
  coding: {weight: 0}
  document: {weight: 0}
"""
"""Entries of 3 to 50 MiB, read three to nine times each, by users who never pause."""
LAUNCHER_SETTINGS = {
    # Open MPI 4 and 5: more ranks than cores if asked for, none tied to a core, also as root.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
SAME_SHARE = 0.05
"""Ranks on a device of a fixed speed must come as near to each other as this."""


def measure(
    number: int, where: Path, options: argparse.Namespace, join: Callable[[], None] | None = None
) -> dict[str, Any]:
    """The result of the same total load on so many ranks; users, threads and capacity are divided."""
    with tempfile.TemporaryDirectory() as folder:
        config, output = Path(folder) / "load.yaml", Path(folder) / "result.json"
        config.write_text(LOAD)
        words = [options.mpirun, "-n", str(number), sys.executable, "-m", "kvspill.cli.main", "run"]
        words += ["--config", str(config), "--cache-dir", str(where), "--output", str(output), "--quiet"]
        words += ["--num-users", str(options.users), "--duration", str(options.seconds)]
        words += ["--io-threads", str(max(1, options.threads // number))]
        words += ["--storage-capacity-gb", str(options.capacity_gb)]
        done = subprocess.run(
            words,
            env={**os.environ, **LAUNCHER_SETTINGS},
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=join,
        )
        if not output.exists():
            raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
        result: dict[str, Any] = json.loads(output.read_text())
        return result


def gib_per_sec(result: dict[str, Any]) -> float:
    """Read and written on the storage tier."""
    metrics = result["metrics"]
    return sum(float(metrics[f"tier_storage_{verb}_bandwidth_gbps"]["value"]) for verb in ("read", "write"))


def row(number: int, result: dict[str, Any], base: float) -> tuple[str, ...]:
    speed, ranks, honesty = gib_per_sec(result), result["ranks"], result["honesty"]
    alone = {"start_skew_ms": None, "rows": []} if ranks is None else ranks
    each = [part["storage_read_gib_per_sec"] for part in alone["rows"]]
    skew = "-" if alone["start_skew_ms"] is None else f"{alone['start_skew_ms']:.2f}"
    spread = f"{min(each):.2f}-{max(each):.2f}" if each else "-"
    cost = honesty["cpu_seconds_per_gib"]
    return (
        str(number),
        f"{speed:.2f}",
        f"{speed / base:.2f}",
        spread,
        "-" if cost is None else f"{cost:.3f}",
        skew,
        "faulty" if result["faulty"] else "incomplete" if result["incomplete"] else "",
    )


@contextlib.contextmanager
def place(options: argparse.Namespace) -> Iterator[tuple[Path, Callable[[], None] | None]]:
    """The directory to measure, and how a process comes under its limit."""
    if options.throttle is None:
        yield options.directory, None
        return
    with throttle.throttled_device(options.directory, 12 << 30) as device:
        device.set_speed(options.throttle)
        yield device.mount, device.join


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("/dev/shm"))
    parser.add_argument("--ranks", default="1,2,4,8", help="numbers of ranks to compare [%(default)s]")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each load [%(default)s]")
    parser.add_argument("--users", type=int, default=64, help="of all ranks together [%(default)s]")
    parser.add_argument("--threads", type=int, default=64, help="of all ranks together [%(default)s]")
    parser.add_argument("--capacity-gb", type=float, default=6.0, help="of all ranks [%(default)s]")
    parser.add_argument("--throttle", type=float, metavar="MIB", help="on a loop device of this speed")
    parser.add_argument("--mpirun", default="mpirun", help="the launcher [%(default)s]")
    parser.add_argument("--patience", type=float, default=60.0, help="wait so long for a quiet machine")
    options = parser.parse_args(argv)
    missing = None if shutil.which(options.mpirun) else tool_missing(options.mpirun, "openmpi-bin")
    missing = missing or (throttle.missing() if options.throttle is not None else None)
    if missing is not None:
        return skip(missing)
    end_orderly()
    rows, speeds = [], []
    with place(options) as (where, join):
        for number in map(int, options.ranks.split(",")):
            wait_quiet(0.3, options.patience)
            result = measure(number, where, options, join)
            speeds.append(gib_per_sec(result))
            rows.append(row(number, result, speeds[0]))
            say(f"{number} ranks: {speeds[-1]:.2f} GiB/s")
    head = ("ranks", "GiB/s", "to the first", "read per rank", "CPU s/GiB", "skew ms", "")
    say(f"\n{options.users} users and {options.threads} I/O threads in all, {options.seconds:g} s\n")
    say(table(head, rows))
    if options.throttle is None:
        return 0
    apart = max(abs(speed / speeds[0] - 1) for speed in speeds)
    met = apart <= SAME_SHARE
    say(f"\nfurthest from the first: {apart:.1%}, at most {SAME_SHARE:.0%}: {'PASS' if met else 'FAIL'}")
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main())
