"""Where recomputing takes its time, less capacity lowers the score of the prefix model (C3)."""

from itertools import pairwise
from typing import Any

from kvspill.config import Config
from kvspill.run import trial
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress

NOISE = 0.02


def throughput(**settings: Any) -> Any:
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
    plan = Plan(config, simulated=True, storage_bytes=config.storage_bytes or 1 << 50)
    result = trial.run_trial(plan, Progress(quiet=True)).document()
    return result["metrics"]["avg_throughput_tokens_per_sec"]["value"]


def test_capacity_pays() -> None:
    figures = [throughput(storage_capacity_gb=gib) for gib in (0.25, 1, 4, 16)]
    for smaller, larger in pairwise(figures):
        assert smaller <= larger * (1 + NOISE)
    assert figures[0] < 0.9 * figures[-1]
