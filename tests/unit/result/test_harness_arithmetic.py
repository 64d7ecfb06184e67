"""What the MLPerf harness computes from a rank's file: no null where it adds or takes a maximum (S14)."""

import json
from statistics import fmean
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.result.result import result_text
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials

SUMMED = {
    "summary": ("avg_throughput_tokens_per_sec", "storage_throughput_tokens_per_sec"),
    "cache_stats": ("tier_storage_read_bandwidth_gbps", "tier_storage_write_bandwidth_gbps"),
}
MAXIMA = ("storage_read_device_p95_ms", "storage_write_device_p95_ms")


def rank_file(**settings: Any) -> Any:
    config = Config(**{"generation_mode": "none", "num_users": 4, "duration": 20.0, **settings})
    return json.loads(result_text(run_trials(make_plan(config, True), Progress(quiet=True))))


def aggregated(files: list[Any]) -> dict[str, float]:
    """The harness's figures of one trial: an absent key counts as 0, a null is an error."""
    found: dict[str, float] = {}
    for block, names in SUMMED.items():
        for name in names:
            blocks = [
                item["summary"] if block == "summary" else item["summary"]["cache_stats"] for item in files
            ]
            found[name] = fmean([sum(item.get(name, 0.0) for item in blocks)])
    for name in MAXIMA:
        found[name] = max(item["summary"]["cache_stats"].get(name, 0.0) for item in files)
    return found


def test_a_run_on_storage_fills_every_number() -> None:
    file = rank_file(cpu_mem_gb=0.0)
    found = aggregated([file, file])
    assert all(value > 0 for value in found.values())
    assert found["tier_storage_read_bandwidth_gbps"] == pytest.approx(
        2 * file["summary"]["cache_stats"]["tier_storage_read_bandwidth_gbps"]
    )
    assert file["summary"]["cache_stats"]["storage_entries"] > 0


def test_a_run_served_from_dram_breaks_no_arithmetic() -> None:
    file = rank_file(cpu_mem_gb=500.0)
    assert file["summary"]["cache_stats"]["storage_entries"] == 0
    found = aggregated([file, file])
    assert found["avg_throughput_tokens_per_sec"] > 0
    assert found["storage_read_device_p95_ms"] == found["storage_write_device_p95_ms"] == 0


def test_a_run_without_a_storage_tier_or_any_completed_request_breaks_none_either() -> None:
    assert aggregated([rank_file(cpu_mem_gb=64.0, storage_tier="off")])["storage_read_device_p95_ms"] == 0
    nothing = rank_file(cpu_mem_gb=0.0, duration=0.01, personas={"chatbot": {"think": [9, 9]}})
    assert nothing["requests_completed"] == 0
    assert aggregated([nothing])["storage_throughput_tokens_per_sec"] == 0
