"""The result: the old program's names and shape inside, nothing that differs between equal runs."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.measure.histograms import Histogram
from kvspill.measure.recorder import Recorder
from kvspill.records import QoS, Tier, Verb
from kvspill.result.answer import Status, answer
from kvspill.result.result import build_result, write_result
from unit.measure.rows import ns, op, request
from unit.result.sample import CREATED, built, empty_recorder, facts, filled_recorder, result, tier

REFERENCE = Path(__file__).parents[4] / "shared" / "data" / "reference-results"
LITERAL_NAMES = [
    "total_tokens_per_sec",
    "storage_throughput_tokens_per_sec",
    "nvme_throughput",
    "nvme_tokens_processed",
    "requests_completed",
    "total_storage_io_time",
    "end_to_end_latency_ms",
    "autoscaling_stats",
    "seed",
    "storage_io_latency_ms",
    "generation_latency_ms",
    "queue_wait_ms",
    "other_ms",
    "prefill_latency_ms",
    "decode_latency_ms",
]
CACHE_NAMES = [
    *["nvme_entries", "storage_entries", "gpu_entries", "cpu_entries", "cache_hit_rate"],
    *(
        f"{tier}_{verb}{component}_{stat}_ms"
        for tier in ("gpu", "cpu", "nvme", "storage")
        for verb in ("read", "write")
        for component in ("", "_device", "_host", "_queue")
        for stat in ("mean", "p50", "p95", "p99", "p999", "p9999")
    ),
]


def names(value: Any, path: str = "") -> set[str]:
    """Every path of keys in nested objects."""
    if not isinstance(value, dict):
        return {path}
    return {path} | {found for key, inner in value.items() for found in names(inner, f"{path}/{key}")}


def of_all_tiers() -> dict[str, Any]:
    """Of a run that read and wrote on each of the three tiers."""
    recorder = filled_recorder()
    for name in Tier:
        for verb in (Verb.READ, Verb.WRITE):
            recorder.op(op(12, started=11, tier=name, verb=verb))
    return result(recorder, facts(tiers=tuple(tier(name) for name in Tier)))


def test_every_literal_name_appears_s8() -> None:
    summary = of_all_tiers()["summary"]
    assert [name for name in LITERAL_NAMES if name not in summary] == []
    assert [name for name in CACHE_NAMES if name not in summary["cache_stats"]] == []


def test_the_names_that_the_harness_reads_are_numbers() -> None:
    recorder = filled_recorder()
    summary = result(recorder)["summary"]
    cache = summary["cache_stats"]
    for value in (
        summary["avg_throughput_tokens_per_sec"],
        summary["storage_throughput_tokens_per_sec"],
        cache["storage_entries"],
        cache["tier_storage_read_bandwidth_gbps"],
        cache["tier_storage_write_bandwidth_gbps"],
        cache["storage_read_device_p95_ms"],
        cache["storage_write_device_p95_ms"],
    ):
        assert isinstance(value, int | float)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="reference results are not here")
@pytest.mark.parametrize("name", ["kvcache_gpu_cpu_nvme_trial2.json", "kvcache_nvme_only_trial1.json"])
def test_a_reader_of_the_old_program_finds_every_name_where_it_was(name: str) -> None:
    old = json.loads((REFERENCE / name).read_text())
    ours = of_all_tiers()
    # Classes without requests say no_data in both; ours has requests in two classes.
    for summary in (old["summary"], ours["summary"]):
        summary["qos_metrics"] = summary["qos_metrics"]["interactive"]
    missing = names(old) - names(ours)
    assert missing == set()


def test_equal_runs_give_equal_files_apart_from_the_time_of_writing() -> None:
    made = (build_result(Config(), facts(simulated=True), filled_recorder()) for _ in range(2))
    first, second = (item.document() for item in made)
    assert {**first, "created_at": ""} == {**second, "created_at": ""}
    assert first["created_at"].endswith("+00:00")


def test_the_result_is_json_and_echoes_the_configuration() -> None:
    config = Config(num_users=7, seed=3)
    built = json.loads(json.dumps(result(config=config), allow_nan=False))
    assert built["config"]["num_users"] == 7
    assert built["seed"] == built["summary"]["seed"] == 3
    assert built["digest"] == "d" * 64
    assert built["created_at"] == CREATED
    assert built["schema_version"] == 2


def test_histograms_in_the_result_have_all_values() -> None:
    encoded = result()["histograms"]
    assert Histogram.from_dict(encoded["request_end_to_end"]).count == 2
    assert Histogram.from_dict(encoded["storage_read_device"]).mean_ns == 1e9
    assert Histogram.from_dict(encoded["demotion_cpu_read_total"]).count == 1
    assert "gpu_read_total" not in encoded


def test_the_timeline_has_a_number_for_every_second() -> None:
    columns = result()["timeline"]["columns"]
    assert {len(values) for values in columns.values()} == {10}
    assert columns["tokens"] == [0, 0, 0, 0, 100, 0, 0, 0, 300, 0]


def test_the_arrays_of_latencies_are_a_bounded_sample_in_seconds() -> None:
    recorder = empty_recorder()
    for _ in range(3000):
        recorder.request(request(15, intended=12, storage=0.25))
    built = result(recorder)
    assert 500 <= len(built["end_to_end_latencies"]) <= 1000
    assert set(built["end_to_end_latencies"]) == {3.0}
    assert set(built["storage_latencies"]) == {0.25}
    assert built["requests_completed"] == 3000


def test_an_interrupted_run_is_marked_incomplete() -> None:
    built = result(run=facts(interrupted="stopped by SIGINT"))
    assert built["incomplete"] is True
    assert built["interrupted"] == "stopped by SIGINT"


def test_a_window_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no end yet; call close_window first"):
        result(Recorder(0, None))


def test_classes_have_their_own_latency_and_targets() -> None:
    recorder = filled_recorder()
    recorder.request(request(19, intended=18.97, tokens=1))
    qos = result(recorder)["summary"]["qos_metrics"]
    assert qos["responsive"] == {
        "no_data": True,
        "total_requests": 0,
        "failed_requests": 0,
        "unfinished_requests": 0,
        "waiting_requests": 0,
        "latency_ms": None,
        "added_ms": None,
        "queue_wait_ms": None,
        "queue_wait_completed_ms": None,
        "sla": None,
    }
    assert qos["interactive"]["total_requests"] == 1
    assert qos["interactive"]["sla"]["target_p95_ms"] == 50
    assert qos["interactive"]["sla"]["met"] is None, "one request is none to judge by"
    batch = qos["batch"]["sla"]
    assert (batch["violations"], batch["compliance"]) == (1, 0.5)


def test_a_failed_request_breaks_its_class_promise() -> None:
    recorder = empty_recorder()
    for _ in range(60):
        recorder.request(request(15, intended=14.99))
    recorder.request(request(15, intended=14.99, failure="decode read"))
    sla = result(recorder)["summary"]["qos_metrics"]["batch"]["sla"]
    assert (sla["violations"], sla["met"], sla["verdict"]) == (1, False, "missed")


def test_an_unfinished_request_that_waited_too_long_breaks_its_class_promise_l3() -> None:
    recorder = empty_recorder()
    recorder.request(request(15, intended=14.99))
    waits = facts(unfinished_ages_ns=(ns(2), ns(0.5)), unfinished_qos=(QoS.BATCH, QoS.BATCH))
    batch = result(recorder, waits)["summary"]["qos_metrics"]["batch"]
    assert batch["unfinished_requests"] == 2
    assert (batch["sla"]["violations"], batch["sla"]["compliance"], batch["sla"]["met"]) == (1, 0.5, None)
    unknown = result(recorder, facts(unfinished_ages_ns=(ns(2),)))["summary"]["qos_metrics"]["batch"]
    assert unknown["unfinished_requests"] is None


@pytest.mark.parametrize("ended", [0, 1])
def test_a_class_of_which_nothing_ended_is_judged_as_one_of_which_one_did_l3(ended: int) -> None:
    recorder = empty_recorder()
    for _ in range(60):
        recorder.request(request(15, intended=14.99, qos=QoS.INTERACTIVE))
    for _ in range(ended):
        recorder.request(request(19, intended=10, qos=QoS.BATCH))
    starved = facts(unfinished_ages_ns=(ns(9),) * 100, unfinished_qos=(QoS.BATCH,) * 100)
    found = built(recorder, starved, Config(num_users=100))
    entry = found.summary.qos_metrics["batch"]
    assert entry.sla is not None
    assert (entry.sla.met, entry.sla.violations, entry.sla.compliance) == (False, 100 + ended, 0.0)
    assert (entry.sla.added_p95_ms is None) is (entry.latency_ms is None) is (not ended)
    assert answer(found).status is Status.NO
    few = facts(unfinished_ages_ns=(ns(9),) * 48, unfinished_qos=(QoS.BATCH,) * 48)
    unjudged = built(recorder, few).summary.qos_metrics["batch"].sla
    assert unjudged is not None
    assert unjudged.met is None, "too few to judge by (S11)"


def test_where_no_request_of_any_class_ended_it_may_be_an_overload_s11() -> None:
    waits = facts(unfinished_ages_ns=(ns(9),) * 100, unfinished_qos=(QoS.BATCH,) * 100)
    found = built(empty_recorder(), waits, Config(num_users=100))
    entry = found.summary.qos_metrics["batch"]
    assert entry.sla is not None
    assert (entry.sla.met, entry.sla.violations) == (None, 100)
    assert answer(found).verdict == "NO VERDICT: no request completed in the measured window."


def test_an_unfinished_request_is_judged_without_the_generation_that_it_waited_for_s11() -> None:
    """Its wait is shown whole (L3), but the answer before it is no doing of queue or storage."""
    recorder = empty_recorder()
    recorder.request(request(15, intended=14.99))
    ages = {"unfinished_ages_ns": (ns(8),) * 3, "unfinished_qos": (QoS.BATCH,) * 3}
    batch = result(recorder, facts(**ages, unfinished_added_ns=(0, ns(0.5), ns(2))))["summary"][
        "qos_metrics"
    ]["batch"]
    assert (batch["unfinished_requests"], batch["waiting_requests"]) == (3, 1)
    assert (batch["sla"]["violations"], batch["sla"]["compliance"]) == (1, 0.5)
    assert batch["queue_wait_ms"]["max"] == pytest.approx(8000, rel=0.01)


def test_a_class_that_is_starved_shows_its_wait_and_no_verdict_on_a_handful() -> None:
    recorder = empty_recorder()
    recorder.request(request(15, intended=14.99))
    starved = facts(unfinished_ages_ns=(ns(8),) * 49, unfinished_qos=(QoS.BATCH,) * 49)
    batch = result(recorder, starved)["summary"]["qos_metrics"]["batch"]
    assert batch["queue_wait_ms"]["mean"] == pytest.approx(8000 * 49 / 50, rel=0.01)
    assert batch["queue_wait_completed_ms"]["mean"] < 1
    assert batch["sla"]["verdict"] == "missed"
    few = result(recorder)["summary"]["qos_metrics"]["batch"]["sla"]
    assert (few["met"], few["verdict"]) == (None, "no verdict")


def served(count: int, generation: float) -> Recorder:
    """Interactive requests that wait 10 ms and then generate for so many seconds."""
    recorder = empty_recorder()
    for _ in range(count):
        started = 15 - generation
        recorder.request(
            request(15, intended=started - 0.01, started=started, generation=generation, qos=QoS.INTERACTIVE)
        )
    return recorder


def sla_of(built: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = built["summary"]["qos_metrics"]["interactive"]["sla"]
    return found


def test_a_class_is_judged_by_what_queue_and_storage_add_s11() -> None:
    sla = sla_of(result(served(50, generation=3.0)))
    assert (sla["verdict"], sla["met"], sla["compliance"]) == ("met", True, 1.0)
    assert sla["added_p95_ms"] == pytest.approx(10, rel=0.01)
    assert sla["actual_p95_ms"] == pytest.approx(3010, rel=0.01), "end-to-end stands beside it"


def test_there_is_no_verdict_below_50_requests_s11() -> None:
    sla = sla_of(result(served(49, generation=3.0)))
    assert (sla["verdict"], sla["met"]) == ("no verdict", None)


def test_there_is_no_verdict_on_an_overload_s11() -> None:
    overloaded = facts(arrived=10_000)
    sla = sla_of(result(served(60, generation=3.0), overloaded, Config(num_users=1)))
    assert (sla["verdict"], sla["met"]) == ("no verdict", None)
    closed = Config(num_users=1, arrival="closed")
    assert sla_of(result(served(60, generation=3.0), overloaded, closed))["verdict"] == "met"
    fewer_servers = Config(num_users=2, servers=1, arrival="closed")
    built = result(served(60, generation=3.0), overloaded, fewer_servers)
    assert sla_of(built)["verdict"] == "no verdict"
    (caution,) = (item for item in built["warnings"] if item["code"] == "overload")
    assert caution["remedy"].startswith("Use fewer --num-users, or more --servers,")
    assert "that of 2 users who share 1 server, which is busy even without any storage" in caution["message"]


def test_a_class_is_judged_by_its_p95_alone_s11() -> None:
    recorder = served(98, generation=3.0)
    for _ in range(2):
        recorder.request(request(19, intended=12, qos=QoS.INTERACTIVE))
    sla = sla_of(result(recorder))
    assert sla["added_p99_ms"] > sla["target_p99_ms"]
    assert (sla["verdict"], sla["violations"]) == ("met", 2)


def test_an_inversion_of_priority_is_named_where_enough_waited() -> None:
    recorder = empty_recorder()
    classes = (QoS.INTERACTIVE,) * 50 + (QoS.BATCH,) * 50
    inverted = facts(unfinished_ages_ns=(ns(2),) * 50 + (ns(1),) * 50, unfinished_qos=classes)
    (line,) = result(recorder, inverted)["summary"]["priority_inversions"]
    assert line == "interactive waited 2.000 s on average, batch 1.000 s"
    right = facts(unfinished_ages_ns=(ns(1),) * 50 + (ns(2),) * 50, unfinished_qos=classes)
    assert result(recorder, right)["summary"]["priority_inversions"] == []
    chance = facts(unfinished_ages_ns=(ns(1.04),) * 50 + (ns(1),) * 50, unfinished_qos=classes)
    assert result(recorder, chance)["summary"]["priority_inversions"] == []


def test_prompts_seen_stand_beside_prompts_found() -> None:
    stats = result()["summary"]["prefix_cache_stats"]
    assert stats["system_prompt_reuse"] == stats["prefix_hits"] == 1
    assert stats["prefix_misses"] == 1
    assert stats["bytes_saved"] == 0


def test_turns_are_counted_at_the_top_and_in_the_summary() -> None:
    built = result()
    assert built["multi_turn_cache_hits"] == built["multi_turn_cache_misses"] == 1
    assert built["summary"]["multi_turn_stats"]["hit_rate"] == 0.5


def test_writing_makes_the_folder_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "result.json"
    assert write_result(path, built()) == path
    assert json.loads(path.read_text()) == result()
    assert [item.name for item in path.parent.iterdir()] == ["result.json"]
    write_result(path, built(empty_recorder()))
    assert json.loads(path.read_text()) == result(empty_recorder())


def test_a_result_is_readable_by_whom_the_mask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_result(tmp_path / "r.json", built())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_place_that_cannot_be_written_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KvspillError, match=r"file/r\.json: .*; choose a writable place with --output"):
        write_result(tmp_path / "file" / "r.json", built())
    (tmp_path / "folder").mkdir()
    with pytest.raises(KvspillError, match=r"cannot write the result to .*folder"):
        write_result(tmp_path / "folder", built())
    assert sorted(item.name for item in tmp_path.iterdir()) == ["file", "folder"]


def test_numbers_that_json_does_not_know_never_reach_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_result(tmp_path / "r.json", built().model_copy(update={"config": {"x": float("nan")}}))
    assert list(tmp_path.iterdir()) == []
