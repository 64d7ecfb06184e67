"""Soak: does memory stay flat over a long run? In virtual time (a day in minutes) or on a real device.

    python benchmarks/soak.py virtual                       24 h, 500 users, closed arrivals
    python benchmarks/soak.py real --cache-dir /mnt/nvme    5 minutes of real I/O

Prints the resident memory over time and its slope after the first third, where caches still fill up.
Short runs also see bounded memories fill: up to 65,536 values of each histogram, and a million keys and
lookups for the bounds of the hit rate. So the slope is also given without these.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.measure.lanes import COMPONENTS
from kvspill.measure.recorder import Recorder
from kvspill.records import MIB, NS_PER_SEC
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan
from kvspill.run.stages import Policy, Stages
from kvspill.run.status import LoadStatus
from kvspill.run.trial import run_trial
from kvspill.serving.accounting import Accountant
from kvspill.world import World

HOUR_SECONDS = 3600.0
SAMPLES = 60
SETTLED_SHARE = 1 / 3
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process held at one moment of the run."""

    at_seconds: float
    resident_bytes: int
    bounded_bytes: int
    """What fills up to a fixed bound: values of histograms, keys and lookups of the hit rate's bounds."""
    entries: int
    completed: int

    @property
    def other_bytes(self) -> int:
        return self.resident_bytes - self.bounded_bytes


class SoakProgress(Progress):
    """Takes samples where others show progress."""

    def __init__(self, interval_seconds: float) -> None:
        super().__init__(quiet=True)
        self._interval_ns = round(interval_seconds * NS_PER_SEC)
        self.samples: list[Sample] = []

    async def watch(
        self,
        world: World,
        see: Callable[[], LoadStatus],
        stages: Stages,
        policy: Policy,  # noqa: ARG002 - asked for by the run
    ) -> None:
        start_ns = world.now_ns()
        while True:
            await world.sleep_ns(self._interval_ns)
            gc.collect()
            entries = sum(len(tier.residents) for tier in stages._cache.tiers)
            at_seconds = (world.now_ns() - start_ns) / NS_PER_SEC
            recorder = stages.measuring
            bounded = (0 if recorder is None else buffered_bytes(recorder)) + remembered_bytes()
            self.samples.append(Sample(at_seconds, resident_bytes(), bounded, entries, see().completed))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def buffered_bytes(recorder: Recorder) -> int:
    """Bytes of recorded values that wait to enter their histograms."""
    requests = recorder.requests
    histograms = [*requests.parts.values(), *requests.by_qos.values(), *requests.queue_by_qos.values()]
    for lane in recorder.lanes():
        histograms.append(lane.pieces)
        for latencies in (lane.latencies, lane.demotion_latencies):
            histograms += [latencies.component(name) for name in COMPONENTS]
    return sum(len(histogram._pending) * 8 for histogram in histograms)


def remembered_bytes() -> int:
    """Bytes of the keys and lookups that the hit rate is bounded by."""
    found = [thing for thing in gc.get_objects() if isinstance(thing, Accountant)]
    total = 0
    for accountant in found:
        log, seen = accountant._log, accountant._seen
        total += sys.getsizeof(seen) + sum(map(sys.getsizeof, seen))
        total += sys.getsizeof(log._names) + sum(map(sys.getsizeof, log._names)) + 32 * len(log._names)
        total += sum(map(sys.getsizeof, (log.numbers, log.counted, log.ends, log.starts, log.sizes)))
    return total


def slope_per_hour(samples: list[Sample], size: Callable[[Sample], int]) -> float:
    """Bytes per hour of the run, by least squares over the samples after the first third."""
    settled = samples[int(len(samples) * SETTLED_SHARE) :]
    times = [sample.at_seconds / HOUR_SECONDS for sample in settled]
    sizes = [float(size(sample)) for sample in settled]
    mean_time, mean_size = sum(times) / len(times), sum(sizes) / len(sizes)
    above = sum((t - mean_time) * (s - mean_size) for t, s in zip(times, sizes, strict=True))
    return above / sum((t - mean_time) ** 2 for t in times)


def virtual_config(hours: float, users: int) -> Config:
    """Users who think for minutes, so that a day is a few hundred thousand requests."""
    patient = {name: {"think": [120, 240]} for name in ("chatbot", "coding", "document")}
    return Config(
        model="llama3.1-8b",
        num_users=users,
        duration=hours * HOUR_SECONDS,
        arrival="closed",
        personas=patient,
        cpu_mem_gb=64,
        storage_capacity_gb=512,
    )


def real_config(minutes: float, users: int, cache_dir: str) -> Config:
    return Config(
        model="tiny-1b",
        num_users=users,
        duration=minutes * 60,
        arrival="closed",
        generation_mode="fast",
        cpu_mem_gb=0.25,
        storage_capacity_gb=1,
        cache_dir=(cache_dir,),
        io_threads=8,
    )


def report(samples: list[Sample], result: dict[str, Any], wall_seconds: float, as_json: bool) -> None:
    slope = slope_per_hour(samples, lambda sample: sample.resident_bytes)
    other_slope = slope_per_hour(samples, lambda sample: sample.other_bytes)
    settled = samples[int(len(samples) * SETTLED_SHARE)]
    figures = {
        "run_hours": round(samples[-1].at_seconds / HOUR_SECONDS, 3),
        "wall_seconds": round(wall_seconds),
        "requests": result["honesty"]["requests"],
        "resident_mib_settled": round(settled.resident_bytes / MIB, 1),
        "resident_mib_end": round(samples[-1].resident_bytes / MIB, 1),
        "slope_mib_per_hour": round(slope / MIB, 3),
        "slope_mib_per_hour_without_bounded": round(other_slope / MIB, 3),
        "errors": result["honesty"]["errors"],
    }
    if as_json:
        print(json.dumps(figures))
        return
    print(f"{'hours':>8} {'resident MiB':>13} {'bounded MiB':>12} {'entries':>9} {'requests':>10}")
    for sample in samples[:: max(1, len(samples) // 12)]:
        hours = sample.at_seconds / HOUR_SECONDS
        sizes = f"{sample.resident_bytes / MIB:13.1f} {sample.bounded_bytes / MIB:12.1f}"
        print(f"{hours:8.2f} {sizes} {sample.entries:9,} {sample.completed:10,}")
    for name, value in figures.items():
        print(f"{name}: {value}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["virtual", "real"])
    parser.add_argument("--hours", type=float, default=24.0, help="length of the virtual run")
    parser.add_argument("--minutes", type=float, default=5.0, help="length of the real run")
    parser.add_argument("--users", type=int, help="users [500 virtual, 12 real]")
    parser.add_argument("--cache-dir", default=".", help="where the real run keeps its files")
    parser.add_argument("--json", action="store_true", help="one line of figures")
    options = parser.parse_args()
    if options.kind == "virtual":
        config = virtual_config(options.hours, options.users or 500)
    else:
        config = real_config(options.minutes, options.users or 12, options.cache_dir)
    assert config.duration is not None
    progress = SoakProgress(config.duration / SAMPLES)
    started = time.monotonic()
    plan = make_plan(config, options.kind == "virtual")
    result = run_trial(plan, progress).document()
    report(progress.samples, result, time.monotonic() - started, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
