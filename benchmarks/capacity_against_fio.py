"""Capacity mode on a throttled device: do repeats agree with each other and with fio?

    sudo python benchmarks/capacity_against_fio.py /tmp --speed 200 --repeats 3
    python benchmarks/capacity_against_fio.py DIRECTORY --raw        on the disk as it is, whatever it does

The workload reads about twelve bytes for each that it writes, and the device limits reads and writes each on
their own: reads set the pace, so the read bandwidth in the confirmed window stands beside fio's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import throttle

DEVICE_BYTES = 12 << 30
MIB = 1 << 20
TOLERANCE = 0.1
FIO_SECONDS = 8


def fio_read_mib_per_sec(directory: Path, join: Any) -> float:
    """Eight readers of pieces of 4 MiB, as many in flight as a few users have."""
    words = [
        *("fio", "--name=read", f"--directory={directory}", "--rw=read", "--bs=4M", "--direct=1"),
        *("--ioengine=psync", "--numjobs=8", "--size=256M", f"--runtime={FIO_SECONDS}", "--time_based"),
        *("--group_reporting", "--thread", "--output-format=json"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True, preexec_fn=join)
    for left in directory.glob("read.*"):
        left.unlink()
    found: float = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]["bw_bytes"]
    return found / MIB


def capacity(directory: Path, seconds: float, join: Any) -> dict[str, Any]:
    """One run of the capacity mode; its result."""
    with tempfile.NamedTemporaryFile(suffix=".json") as output:
        words = [
            *(
                sys.executable,
                "-m",
                "kvspill.cli.main",
                "run",
                "--model",
                "tiny-1b",
                "--tensor-parallel",
                "4",
            ),
            *(
                "--num-users",
                "4",
                "--duration",
                str(seconds),
                "--cpu-mem-gb",
                "0",
                "--generation-mode",
                "none",
            ),
            *("--enable-autoscaling", "--autoscaler-mode", "capacity", "--max-users", "500", "--quiet"),
            *("--storage-capacity-gb", "4", "--cache-dir", str(directory), "--output", output.name),
        ]
        done = subprocess.run(words, capture_output=True, text=True, preexec_fn=join)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"kvspill ended with {done.returncode}")
        result: dict[str, Any] = json.loads(Path(output.name).read_text())
        return result


def measure(directory: Path, args: argparse.Namespace, join: Any) -> bool:
    """All repeats, fio and kvspill in turn; True where everything agrees."""
    fio, found, concluded = [], [], []
    for number in range(args.repeats):
        fio.append(fio_read_mib_per_sec(directory, join))
        result = capacity(directory, args.seconds, join)
        answer = result["autoscaling_stats"][-1]
        cache = result["summary"]["cache_stats"]
        found.append(cache["tier_storage_read_bandwidth_gbps"] * 1024)
        concluded.append(answer["concluded"])
        low, high = answer["peak_throughput_ci95"]
        print(
            f"{number + 1}: fio {fio[-1]:7.1f} MiB/s   kvspill reads {found[-1]:7.1f} MiB/s, writes "
            f"{cache['tier_storage_write_bandwidth_gbps'] * 1024:6.1f}   {answer['users']:4} users   "
            f"{answer['peak_throughput']:8.0f} KV tok/s [{low:.0f}, {high:.0f}]   "
            f"{answer['time_seconds']:4.0f} s   {answer['reason']}",
            flush=True,
        )
    spread = (max(found) - min(found)) / median(found)
    error = median(found) / median(fio) - 1
    print(f"repeats differ by {spread:.1%}; against fio {error:+.1%}; {sum(concluded)} concluded")
    return all(concluded) and (args.raw or (spread <= TOLERANCE and abs(error) <= TOLERANCE))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--speed", type=float, default=200, help="MiB/s of the device [200]")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=180, help="--duration of each run [180]")
    parser.add_argument("--raw", action="store_true", help="no throttled device: the directory as it is")
    args = parser.parse_args()
    if args.raw:
        with tempfile.TemporaryDirectory(dir=args.directory) as name:
            return 0 if measure(Path(name), args, None) else 1
    reason = throttle.missing()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    with throttle.throttled_device(args.directory, DEVICE_BYTES) as device:
        device.set_speed(args.speed)
        return 0 if measure(device.mount, args, device.join) else 1


if __name__ == "__main__":
    sys.exit(main())
