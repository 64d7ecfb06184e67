"""Fixed work of one server: hits, bytes and evictions depend on the workload alone, not on any speed."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.config.blocks import ENGINES
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial

MIB = 1 << 20
SLOW = {
    "storage": {
        "read_gib_per_sec": 0.05,
        "write_gib_per_sec": 0.01,
        "read_latency_us": 20_000,
        "write_latency_us": 5_000,
        "delete_latency_us": 30_000,
        "concurrency": 3,
    },
    "cpu": {
        "read_gib_per_sec": 1,
        "write_gib_per_sec": 0.3,
        "read_latency_us": 2_000,
        "write_latency_us": 500,
    },
}
BLOCKS: dict[str, Any] = {"io_model": "prefix"}
DRAM: dict[str, Any] = {"cpu_mem_gb": 0.1}
LOADS: dict[str, dict[str, Any]] = {
    "whole entries": {},
    "whole entries over DRAM": DRAM,
    "whole entries over three tiers": {**DRAM, "gpu_mem_gb": 0.05},
    "all turns of a history": {"history": "all", **DRAM},
    "generation": {"generation_mode": "fast", **DRAM},
    "streams": {"io_model": "stream", "max_requests": 8, **DRAM},
    "documents": {"enable_rag": True, "rag_num_docs": 1, **DRAM},
    "blocks": BLOCKS,
    "blocks over DRAM": {**BLOCKS, **DRAM},
    "blocks written through": {**BLOCKS, **DRAM, "write_policy": "through"},
    "a short write queue": {**BLOCKS, **DRAM, "write_queue_blocks": 20},
}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    import yaml

    path = tmp_path_factory.mktemp("profiles") / "slow.yaml"
    path.write_text(yaml.safe_dump(SLOW))
    return str(path)


def work(profile: str, storage_bytes: int = 224 * MIB, **settings: Any) -> dict[str, Any]:
    """What a run of fixed work asked of its tiers and found there."""
    fixed = {
        "model": "tiny-1b",
        "num_users": 5,
        "max_requests": 30,
        "servers": 1,
        "cpu_mem_gb": 0,
        "generation_mode": "none",
    }
    config = Config(**{**fixed, "device_profile": profile, "quiet": True, **settings})
    plan = Plan(config, simulated=True, storage_bytes=storage_bytes)
    result = run_trial(plan, Progress(quiet=True)).document()
    counted = {
        name: metric["value"]
        for name, metric in result["metrics"].items()
        if name.endswith(
            ("_bytes", "_bytes_read_gb", "_bytes_written_gb", "_ops", "_entries", "_hits", "_misses")
        )
    }
    model = {name: count for name, count in result["io_model"].items() if name.startswith("blocks_")}
    # How many waited at once is a matter of time.
    model.pop("blocks_queued_max", None)
    return {**counted, **model, "digest": result["digest"], "completed": result["requests_completed"]}


@pytest.mark.parametrize("arrival", ["closed", "open"])
@pytest.mark.parametrize("load", LOADS)
def test_the_work_is_the_same_on_storage_of_any_speed(load: str, arrival: str, slow: str) -> None:
    null, bucket, disk = (
        work(profile, arrival=arrival, **LOADS[load]) for profile in ("null", "object-store", slow)
    )
    assert null["completed"] == LOADS[load].get("max_requests", 30)
    assert null == bucket
    assert null == disk


@pytest.mark.parametrize("engine", ENGINES)
def test_the_work_of_an_engine_is_the_same_on_storage_of_any_speed(engine: str, slow: str) -> None:
    load = {"engine": engine, "num_users": 2, "max_requests": 8, "cpu_mem_gb": 0.05, "arrival": "closed"}
    null, disk = (work(profile, 32 * MIB, **load) for profile in ("null", slow))
    assert null["completed"] == 8
    assert null == disk


def test_so_much_is_evicted_that_the_order_counts(slow: str) -> None:
    one = work("null", arrival="closed", **DRAM)
    assert one["storage_evicted_entries"] > 10
    assert one["cache_misses"] > 0
    many = [work(profile, arrival="closed", servers=3, **BLOCKS, **DRAM) for profile in ("null", slow)]
    assert many[0]["digest"] == many[1]["digest"]
    assert many[0]["cache_hits"] != many[1]["cache_hits"]
