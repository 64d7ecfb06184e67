"""Every engine preset serves the same users, in simulation and on the disk."""

from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.config.blocks import ENGINES
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial

NAMES = ENGINES
SETTINGS: dict[str, Any] = {
    "model": "tiny-1b",
    "num_users": 4,
    "arrival": "closed",
    "generation_mode": "none",
    "cpu_mem_gb": 0,
    "quiet": True,
}
GIB = 1 << 30


def simulate(name: str, storage_bytes: Any = 4 * GIB, **settings: Any) -> Any:
    config = Config(engine=name, max_requests=60, **{**SETTINGS, **settings})
    return run_trial(
        Plan(config, simulated=True, storage_bytes=storage_bytes), Progress(quiet=True)
    ).document()


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_serves_everything_and_stays_within_the_bounds_of_hits(name: Any) -> None:
    result = simulate(name)
    facts = result["io_model"]
    assert result["requests_completed"] == 60
    assert facts["blocks_failed"] == facts["blocks_load_errors"] == 0
    assert 0 < facts["byte_hit_rate"] <= facts["hit_rate_bounds"]["infinite"] + 1e-9
    assert facts["break_even"]["requests_that_loaded"] > 0
    assert facts["read_inflation"] <= 1.0 + 1e-9


def test_all_presets_are_asked_for_the_same_tokens() -> None:
    tokens = set()
    for name in NAMES:
        even = simulate(name)["io_model"]["break_even"]
        tokens.add(even["loaded_tokens"] + even["recomputed_tokens"])
    assert len(tokens) == 1


def test_without_eviction_a_full_tier_refuses_and_with_it_makes_room() -> None:
    full = simulate("vllm-fs", storage_bytes=GIB // 8)
    assert full["io_model"]["blocks_refused"] > 0
    assert sum(tier["used_bytes"] for tier in full["tiers"]) <= GIB // 8
    assert simulate("lmcache", storage_bytes=GIB // 8)["io_model"]["blocks_refused"] == 0


def test_an_engine_that_evicts_from_70_percent_on_never_holds_more() -> None:
    result = simulate("flexkv", storage_bytes=GIB // 4)
    assert result["tiers"][0]["peak_bytes"] <= 0.7 * GIB / 4


def test_fewer_threads_make_a_simulated_engine_slower() -> None:
    def load_seconds(**settings: Any) -> Any:
        return simulate("kvbm", admit_uses=1, **settings)["io_model"]["break_even"]["load_seconds"]

    assert load_seconds(io_threads=1) > load_seconds(io_threads=16)


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_a_preset_runs_on_the_disk_and_leaves_nothing(name: Any, tmp_path: Path) -> None:
    config = Config(engine=name, max_requests=12, cache_dir=[str(tmp_path)], **SETTINGS)
    plan = Plan(config, simulated=False, storage_bytes=GIB, cache_dirs=(tmp_path,))
    result = run_trial(plan, Progress(quiet=True)).document()
    facts = result["io_model"]
    assert result["requests_completed"] == 12
    assert facts["blocks_failed"] == facts["blocks_load_errors"] == 0
    assert result["tiers"][-1]["backend"] == config.layout
    assert result["tiers"][-1]["verifies"]
    assert list(tmp_path.iterdir()) == []
