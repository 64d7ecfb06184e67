"""Where recomputing takes its time, less capacity and faults lower the score of the prefix model (C3)."""

import random
from itertools import pairwise

import pytest

from kvspill.config import Config
from kvspill.records import Tier
from kvspill.run import trial
from kvspill.run.progress import Progress
from sim.faults import FaultyBackend

NOISE = 0.02


def throughput(faults=None, **settings):
    config = Config(
        model="tiny-1b",
        io_model="prefix",
        num_users=12,
        arrival="closed",
        cpu_mem_gb=0,
        duration=60,
        generation_mode="deterministic",
        decode_ms_per_token=1,
        prefill_us_per_token=183,
        **settings,
    )
    real_open = trial.open_backends

    def open_failing(*arguments):
        backends = real_open(*arguments)
        backends[Tier.STORAGE] = FaultyBackend(backends[Tier.STORAGE], random.Random(1), *faults)
        return backends

    with pytest.MonkeyPatch.context() as patch:
        if faults is not None:
            patch.setattr(trial, "open_backends", open_failing)
        plan = trial.Plan(config, simulated=True, storage_bytes=config.storage_bytes or 1 << 50)
        result = trial.run_trial(plan, Progress(quiet=True))
    return result["metrics"]["avg_throughput_tokens_per_sec"]["value"], result


def test_capacity_pays():
    figures = [throughput(storage_capacity_gb=gib)[0] for gib in (0.25, 1, 4, 16)]
    for smaller, larger in pairwise(figures):
        assert smaller <= larger * (1 + NOISE)
    assert figures[0] < 0.9 * figures[-1]


@pytest.mark.parametrize("faults", [(0.2, 0, 0), (0, 0.2, 0), (0, 1.0, 0), (0, 0, 0.5)])
def test_no_fault_raises_the_throughput(faults):
    assert throughput(faults)[0] <= throughput()[0] * (1 + NOISE)


def test_a_device_that_keeps_nothing_fails_almost_every_request():
    score, result = throughput((0, 1.0, 0))
    assert score < 0.1 * throughput()[0]
    assert result["io_model"]["blocks_written"] == 0
    assert "block_writes_failed" in [warning["code"] for warning in result["warnings"]]
