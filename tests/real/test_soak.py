"""Nothing grows with time: live objects, descriptors and threads stay the same while requests come and go.

`python benchmarks/soak.py` is the long version, which looks at the resident memory.
"""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan
from kvspill.run.status import LoadStatus
from kvspill.run.trial import run_trial
from kvspill.world import World

SAMPLES = 15
LOOK_NS = 50_000_000
Samples = list[tuple[int, int, int]]


class Sampler(Progress):
    """Counts what a leak would make more of, each time so many more requests have completed."""

    def __init__(self, requests: int) -> None:
        super().__init__(quiet=True)
        self._requests = requests
        self.samples: list[tuple[int, int, int]] = []

    async def watch(self, world: World, see: Callable[[], LoadStatus], *_rest: Any) -> None:
        while True:
            await world.sleep_ns(LOOK_NS)
            if see().completed >= (len(self.samples) + 1) * self._requests:
                gc.collect()
                counts = (len(gc.get_objects()), len(os.listdir("/proc/self/fd")), threading.active_count())
                self.samples.append(counts)


def soak(config: Config, simulated: bool) -> tuple[Samples, Samples]:
    """The samples of the second and the last third of so many requests."""
    assert config.max_requests is not None
    sampler = Sampler(config.max_requests // SAMPLES)
    result = run_trial(make_plan(config, simulated), sampler).document()
    assert result["honesty"]["errors"] == []
    third = SAMPLES // 3
    assert len(sampler.samples) >= SAMPLES - 1
    return sampler.samples[third : 2 * third], sampler.samples[2 * third :]


def mean(samples: Samples, column: int) -> float:
    return sum(sample[column] for sample in samples) / len(samples)


@pytest.mark.parametrize(
    "io_model", ["mlperf", *(pytest.param(name, marks=pytest.mark.slow) for name in ("prefix", "stream"))]
)
def test_closed_users_in_virtual_time_keep_no_more_objects(io_model: str) -> None:
    patient = {name: {"think": [20, 40]} for name in ("chatbot", "coding", "document")}
    config = Config(
        model="tiny-1b",
        num_users=30,
        max_requests=450,
        arrival="closed",
        personas=patient,
        cpu_mem_gb=0.25,
        storage_capacity_gb=1,
        io_model=io_model,
        stream_tokens_per_read=64,
    )
    early, late = soak(config, simulated=True)
    assert mean(late, 0) <= mean(early, 0) * 1.03


@pytest.mark.real
def test_real_io_keeps_no_more_objects_descriptors_or_threads(tmp_path: Path) -> None:
    config = Config(
        model="tiny-1b",
        num_users=6,
        max_requests=750,
        arrival="closed",
        personas={
            name: {"context": [16, 64], "think": [0.01, 0.02]} for name in ("chatbot", "coding", "document")
        },
        cpu_mem_gb=0.05,
        storage_capacity_gb=0.05,
        generation_mode="none",
        cache_dir=(str(tmp_path),),
        io_threads=4,
        io_size=262144,
    )
    early, late = soak(config, simulated=False)
    assert mean(late, 0) <= mean(early, 0) * 1.03
    assert mean(late, 1) <= mean(early, 1) + 4, "descriptors leak"
    assert mean(late, 2) <= mean(early, 2) + 0.5, "threads leak"
