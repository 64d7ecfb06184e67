"""No cache finds more than one that never forgets, however a run ends."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial

LOADS = {
    "cut off": {"num_users": 30},
    "small": {"num_users": 30, "storage_capacity_gb": 4},
    "retrieval": {"num_users": 10, "enable_rag": True, "rag_num_docs": 3},
}


@pytest.mark.parametrize("io_model", ["mlperf", "prefix"])
@pytest.mark.parametrize("load", LOADS)
def test_measured_reuse_stays_below_the_unlimited_cache(load: Any, io_model: str) -> None:
    config = Config(model="tiny-1b", cpu_mem_gb=0, duration=60, io_model=io_model, **LOADS[load])
    plan = Plan(config, simulated=True, storage_bytes=config.storage_bytes or 1 << 40)
    facts = run_trial(plan, Progress(quiet=True)).io_model
    assert 0 < facts["byte_hit_rate"] <= facts["hit_rate_bounds"]["infinite"] + 1e-9
