"""Metrics of a hand-made run: each figure as its definition says (DESIGN's table, S1-S10)."""

from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import GIB, Outcome, Purpose, Tier, Verb
from kvspill.report.docs import metrics_page
from kvspill.result.metrics.catalog import METRICS
from unit.measure.rows import ns, op, request
from unit.result.sample import TOKEN_BYTES, empty_recorder, facts, filled_recorder, result, tier

SUMMARY: dict[str, Any] = {
    "elapsed_time": 10.0,
    "total_requests": 2,
    "requests_completed": 2,
    "total_tokens": 400,
    "avg_throughput_tokens_per_sec": 40.0,
    "total_tokens_per_sec": 40.0,
    "storage_throughput_tokens_per_sec": 100.0,
    "requests_per_second": 0.2,
    "total_storage_io_time": 4.0,
    "nvme_tokens_processed": 7 * GIB // TOKEN_BYTES,
    "nvme_throughput": 7 * GIB / TOKEN_BYTES / 10,
    "io_time_bandwidth_gib_per_sec": 2.0,
    "io_time_per_op_ms": 1000.0,
    "io_time_per_gib_ms": 500.0,
}
CACHE: dict[str, Any] = {
    "decode_bytes_read_gb": 4.0,
    "prefill_bytes_written_gb": 2.0,
    "total_read_gb": 5.0,
    "total_write_gb": 3.0,
    "total_read_bytes": 5 * GIB,
    "read_write_ratio": 5 / 3,
    "read_iops": 0.2,
    "write_iops": 0.2,
    "decode_reads": 1,
    "prefill_writes": 1,
    "tier_storage_read_bandwidth_gbps": 0.4,
    "tier_storage_write_bandwidth_gbps": 0.3,
    "tier_cpu_read_bandwidth_gbps": 0.1,
    "tier_cpu_write_bandwidth_gbps": 0.0,
    "tier_storage_kv_bytes_read_gb": 4.0,
    "tier_nvme_kv_bytes_written_gb": 3.0,
    "demotion_storage_write_gib": 1.0,
    "demotion_cpu_read_gib": 1.0,
    "demotion_cpu_read_p95_ms": 1000.0,
    "cache_hit_rate": 0.6,
    "reuse_hit_rate": pytest.approx(1 / 3),
    "cache_hits": 3,
    "cache_misses": 2,
    "user_cache_hits": 2,
    "multi_turn_hits": 1,
    "system_prompt_hits": 0,
    "system_prompt_reuse": 1,
    "storage_read_p95_ms": 2000.0,
    "storage_read_device_p95_ms": 1000.0,
    "storage_read_host_p95_ms": 500.0,
    "storage_read_queue_mean_ms": 500.0,
    "nvme_read_p95_ms": 2000.0,
    "storage_write_ops": 2,
    "offloads_nvme": 2,
    "offloads_cpu": 0,
    "nvme_entries": 5,
    "storage_entries": 5,
    "cpu_entries": 5,
    "cpu_memory_used_gb": 2.0,
}


@pytest.mark.parametrize(("name", "expected"), SUMMARY.items())
def test_a_summary_metric_is_what_its_definition_says(name: str, expected: Any) -> None:
    assert result()["summary"][name] == pytest.approx(expected)


@pytest.mark.parametrize(("name", "expected"), CACHE.items())
def test_a_cache_metric_is_what_its_definition_says(name: str, expected: Any) -> None:
    assert result()["summary"]["cache_stats"][name] == expected


def test_the_four_parts_add_up_to_end_to_end_s1() -> None:
    summary = result()["summary"]
    parts = ("queue_wait_completed_ms", "storage_io_latency_ms", "generation_latency_ms", "other_ms")
    assert summary["end_to_end_latency_ms"]["mean"] == sum(summary[name]["mean"] for name in parts) == 6000
    assert [summary[name]["mean"] for name in parts] == [2000, 2000, 1000, 1000]


def test_a_tier_that_the_run_does_not_have_is_null_and_not_zero() -> None:
    built = result()
    of_gpu = ("gpu_", "tier_gpu_")
    gpu = {name: item["value"] for name, item in built["metrics"].items() if name.startswith(of_gpu)}
    assert len(gpu) > 50
    assert set(gpu.values()) == {None}
    assert not any(name.startswith(of_gpu) for name in built["summary"]["cache_stats"])


def test_nothing_in_cache_stats_is_null_for_readers_do_arithmetic_on_it_s14() -> None:
    for built in (result(), result(empty_recorder()), result(run=facts(tiers=(tier(Tier.CPU),)))):
        assert None not in built["summary"]["cache_stats"].values()


def test_a_tier_without_traffic_has_zero_bytes_but_no_latency() -> None:
    built = result(empty_recorder())
    cache = built["summary"]["cache_stats"]
    assert cache["tier_storage_read_bandwidth_gbps"] == 0.0
    for name in ("storage_read_p95_ms", "cache_hit_rate"):
        assert name not in cache
        assert built["metrics"][name]["value"] is None


def test_unfinished_requests_enter_the_wait_as_lower_bounds_l3() -> None:
    summary = result(run=facts(unfinished_ages_ns=(ns(7),)))["summary"]
    assert summary["queue_wait_ms"]["mean"] == pytest.approx((1000 + 3000 + 7000) / 3)
    assert summary["queue_wait_ms"]["max"] == 7000
    assert summary["queue_wait_completed_ms"]["mean"] == 2000
    assert summary["requests_unfinished"] == 1


def test_a_failed_request_adds_its_storage_time_and_no_tokens_and_nothing_is_corrected_s13() -> None:
    recorder = filled_recorder()
    recorder.cache_call(ns(11), ns(15))
    recorder.request(request(15, storage=4, tokens=999, failure="write: ENOSPC"))
    summary = result(recorder)["summary"]
    assert summary["total_tokens"] == 400
    assert summary["storage_throughput_tokens_per_sec"] == pytest.approx(50.0)
    assert summary["requests_failed"] == 1


def test_the_time_of_requests_that_are_not_done_lowers_storage_throughput() -> None:
    recorder = filled_recorder()
    recorder.cache_call(ns(16), ns(500))
    summary = result(recorder)["summary"]
    inside = recorder.window_end_ns - ns(16)
    assert summary["total_storage_io_time"] == pytest.approx(4 + inside / ns(1))
    assert summary["storage_throughput_tokens_per_sec"] == 400 / summary["total_storage_io_time"]


def test_an_error_is_neither_hit_nor_miss_and_can_not_raise_the_hit_rate_s5() -> None:
    recorder = filled_recorder()
    key = next(key for key in recorder.lookups if key[0] is Outcome.MISS)
    recorder.lookups[(Outcome.ERROR, *key[1:])] += 5
    cache = result(recorder)["summary"]["cache_stats"]
    assert (cache["cache_hits"], cache["cache_misses"], cache["cache_errors"]) == (3, 2, 5)
    assert cache["cache_hit_rate"] == 0.3


def test_rebuilt_entries_are_prefill_writes_and_also_shown_apart_c3() -> None:
    recorder = filled_recorder()
    recorder.op(op(17, verb=Verb.WRITE, purpose=Purpose.HISTORY, nbytes=GIB))
    cache = result(recorder)["summary"]["cache_stats"]
    assert cache["prefill_bytes_written_gb"] == 3.0
    assert cache["rebuilt_bytes_written_gib"] == 1.0


def test_efficiency_needs_the_devices_bandwidth_s7() -> None:
    assert result()["summary"]["device_bandwidth_efficiency"] is None
    summary = result(config=Config(device_bandwidth_gbps=7))["summary"]
    assert summary["device_bandwidth_efficiency"] == pytest.approx(0.1)
    assert summary["io_time_bandwidth_efficiency"] == pytest.approx(2 / 7)


def test_an_empty_window_has_no_rates() -> None:
    recorder = empty_recorder()
    recorder.close_window(ns(10))
    summary = result(recorder, facts(interrupted="stopped by SIGINT"))["summary"]
    assert "avg_throughput_tokens_per_sec" not in summary, "a reader would add up a null (S14)"
    assert summary["nvme_throughput"] is None


def test_storage_figures_are_null_without_a_storage_tier_c2() -> None:
    summary = result(run=facts(tiers=(tier(Tier.CPU),)))["summary"]
    assert summary["nvme_throughput"] is None
    assert "storage_entries" not in summary["cache_stats"]


def test_every_metric_has_a_unit_a_formula_and_both_warnings() -> None:
    for metric in METRICS:
        assert all((metric.name, metric.unit, metric.formula, metric.use, metric.misleads)), metric.name
    names = [name for metric in METRICS for name, _ in metric.expand()]
    assert len(names) == len(set(names))


def test_the_page_of_metrics_is_the_one_that_the_code_makes() -> None:
    page = Path(__file__).parents[3] / "docs" / "metrics.md"
    assert page.read_text() == metrics_page(), "run: python -m kvspill.report.docs metrics > docs/metrics.md"
