"""The limit finder against brute force on simulated devices of known speed: 5 speeds x 3 models, 3 modes.

    python benchmarks/autoscaler_sweep.py                 prints the table (a quarter of an hour on one core)
    python benchmarks/autoscaler_sweep.py --write         also renews tests/sim/limit_answers.json

Brute force runs every user count around the limit for thousands of requests and takes the largest that
passes. It knows nothing of windows, stages or searches.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from sim.limit_sweep import (  # noqa: E402
    CASES,
    REQUESTS_PER_INTERVAL,
    SLO_CLASSES,
    fixed_users,
    pace_seconds,
    peak_kv_tokens_per_sec,
    search,
    search_config,
    slo_ms,
)

ANSWERS = ROOT / "tests" / "sim" / "limit_answers.json"
TARGET, LATE_ALLOWED = 0.8, 0.05
COARSE, FINE = 0.12, 0.025
START = 8


class Brute:
    """Fixed user counts on one device, each run once."""

    def __init__(self, directory: Path, model: str, speed: float, requests: int) -> None:
        self._config = search_config(directory, model, speed, "slo", slo_classes=",".join(SLO_CLASSES))
        self._speed = speed
        self._requests = requests
        self._limit_ms = slo_ms(self._config, speed)
        self._runs: dict[int, tuple[float, float]] = {}

    def run(self, users: int) -> tuple[float, float]:
        """Saturation and the worst class's share of late requests."""
        if users not in self._runs:
            interval = pace_seconds(self._config, self._speed)
            warm = 5 * interval
            length = interval * self._requests / REQUESTS_PER_INTERVAL
            found = fixed_users(self._config, self._speed, users, warm + length, warm)
            late = [found.late_share(self._limit_ms, qos) for qos in SLO_CLASSES.values()]
            self._runs[users] = (float(found.saturation), max(late))
        return self._runs[users]

    def largest(self, which: int, limit: float) -> int:
        """The largest count that passes; where chance mixes the order, the middle of the mixed counts."""
        users = START
        while self.run(users)[which] <= limit:
            users = math.ceil(users * (1 + COARSE))
        first, last = max(1, math.floor(users / (1 + COARSE) ** 2)), math.ceil(users * (1 + COARSE / 2))
        counts = sorted({*range(first, last + 1, max(1, round(FINE * users))), users})
        passed: list[int] = [count for count in counts if self.run(count)[which] <= limit]
        failed: list[int] = [count for count in counts if self.run(count)[which] > limit]
        return round((max(passed, default=first) + min(failed) - 1) / 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=6000, help="requests of each brute-force run [6000]")
    parser.add_argument("--write", action="store_true", help=f"renew {ANSWERS.name}")
    parser.add_argument("--first", type=int, default=1, help="the case to begin with [1]")
    parser.add_argument("--last", type=int, default=len(CASES), help=f"the case to end with [{len(CASES)}]")
    options = parser.parse_args()
    answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    header = f"{'model':22} {'GiB/s':>6}  {'mode':8} {'answer':>9} {'brute':>9} {'error':>7}"
    print(f"{header} stages   seconds  CPU s")
    with tempfile.TemporaryDirectory() as name:
        for model, speed in CASES[options.first - 1 : options.last]:
            brute = Brute(Path(name), model, speed, options.requests)
            limits = {"qos": brute.largest(0, TARGET), "slo": brute.largest(1, LATE_ALLOWED)}
            answers[f"{model} {speed:g}"] = limits
            for mode in ("qos", "slo", "capacity"):
                row(Path(name), model, speed, mode, limits.get(mode))
            if options.write:
                ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")


def row(directory: Path, model: str, speed: float, mode: str, known: float | None) -> None:
    """Search and print how near it came."""
    config = search_config(directory, model, speed, mode, slo_classes=",".join(SLO_CLASSES))
    before = time.process_time()
    result = search(config)
    spent = time.process_time() - before
    steps = result["autoscaling_stats"]
    answer = steps[-1]
    if known is None:
        cache = result["summary"]["cache_stats"]
        moved = (cache["tier_storage_kv_bytes_read_gb"], cache["tier_storage_kv_bytes_written_gb"])
        known = peak_kv_tokens_per_sec(config, speed, *moved)
        found = answer["peak_throughput"]
    else:
        found = answer["users"]
    verdict = "" if answer["concluded"] else "  not concluded"
    print(
        f"{model:22} {speed:6g}  {mode:8} {found:9.0f} {known:9.0f} {found / known - 1:+7.1%} "
        f"{len(steps) - 1:6} {answer['time_seconds']:9.0f} {spent:6.1f}{verdict}",
        flush=True,
    )


if __name__ == "__main__":
    main()
