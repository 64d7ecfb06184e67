"""Assessment, honesty block and warnings: nothing passes for free, and doubts come with remedies."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import GIB, Eviction, HitType, Lookup, Outcome, Purpose, Tier, Verb
from kvspill.report.console import render_summary
from kvspill.result.answer import Status, answer
from kvspill.result.facts import TierFacts
from kvspill.result.honesty import Ceiling
from kvspill.result.warnings.devices import MEMORY_DIRECTORY
from kvspill.result.warnings.known import noted
from unit.measure.rows import ns, op, request
from unit.result.sample import built, codes, empty_recorder, facts, filled_recorder, result, tier

PROBES: dict[str, Any] = {
    "block_device": {"devices": ["vda"], "read_bytes": 4 * GIB, "written_bytes": 3 * GIB},
    "process_io": {"read_bytes": 4 * GIB, "written_bytes": 3 * GIB},
    "nfs": None,
    "cpu_seconds": 0.8,
    "peak_resident_bytes": 100 << 20,
    "event_loop_lag_ms": {"p99": 0.5},
}


def health(built: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = built["summary"]["storage_health"]
    return found


def quick_recorder() -> Any:
    """Like the sample, but within every latency limit."""
    recorder = empty_recorder()
    recorder.request(request(15, intended=14.99, storage=0.01))
    recorder.op(op(15, started=14.9, verb=Verb.WRITE))
    recorder.op(op(15, started=14.95))
    recorder.lookups.update(filled_recorder().lookups)
    return recorder


def test_the_latency_profile_judges_what_was_measured() -> None:
    verdict = health(result(quick_recorder()))
    assert verdict["overall_status"] == "PASS"
    passed = {row["name"]: row["passed"] for row in verdict["criteria"]}
    assert passed == {
        "NVMe Write P95 < 500ms": True,
        "NVMe Read P95 < 200ms": True,
        "CPU RAM P95 < 150ms": None,
        "Cache Hit Rate > 30%": True,
    }
    assert (verdict["passed_count"], verdict["total_count"]) == (3, 3)


def test_a_slow_device_fails_the_latency_profile() -> None:
    verdict = health(result())
    assert verdict["overall_status"] == "FAIL"
    read = next(row for row in verdict["criteria"] if row["name"] == "NVMe Read P95 < 200ms")
    assert (read["actual"], read["passed"]) == (1000.0, False)


@pytest.mark.parametrize("tiers", [(tier(Tier.CPU), tier(Tier.STORAGE)), (tier(Tier.CPU),)])
def test_storage_that_was_never_touched_does_not_pass(tiers: tuple[TierFacts, ...]) -> None:
    recorder = empty_recorder()
    recorder.request(request(15, intended=14.99, storage=0.01))
    recorder.op(op(15, started=14.95, tier=Tier.CPU))
    recorder.lookups.update(filled_recorder().lookups)
    found = built(recorder, facts(tiers=tiers))
    assert health(found.document())["overall_status"] == "NOT MEASURED"
    said = "Verdict: NOT MEASURED (latency profile, 2 of 2 criteria met, none of storage)"
    assert said in render_summary(found)


def test_a_tier_that_is_not_there_has_no_criterion() -> None:
    verdict = health(result(quick_recorder(), facts(tiers=(tier(Tier.CPU),))))
    assert [row["name"] for row in verdict["criteria"]] == ["CPU RAM P95 < 150ms", "Cache Hit Rate > 30%"]


@pytest.mark.parametrize(
    ("target", "status"), [(None, "NO TARGET"), (39.0, "PASS"), (40.0, "PASS"), (40.1, "FAIL")]
)
def test_the_throughput_profile_never_passes_for_free_s10(target: float | None, status: str) -> None:
    config = Config(performance_profile="throughput", min_tokens_per_sec=target)
    verdict = health(result(config=config))
    assert verdict["overall_status"] == status
    assert [row["metric"] for row in verdict["criteria"]] == ["avg_throughput_tokens_per_sec"]


def test_a_directory_in_memory_gets_no_verdict_of_a_drive() -> None:
    found = built(quick_recorder(), warnings=[MEMORY_DIRECTORY.of(path="/dev/shm")])
    verdict = health(found.document())
    assert verdict["overall_status"] == "NOT MEASURED"
    storage = [row["passed"] for row in verdict["criteria"] if row["metric"].startswith("storage_")]
    assert storage == [None, None]
    assert "The storage tier lies in memory: this is not a verdict on a drive." in render_summary(found)
    assert "NVMe Read P95 <" in render_summary(built(quick_recorder()))
    assert "NVMe Read P95 <" not in render_summary(found)
    short = render_summary(found, verbose=False)
    assert "(in memory, not a drive)" in short.splitlines()[0]
    assert "NOT MEASURED, the storage tier lies in memory" in short


def test_failures_can_not_pass() -> None:
    recorder = quick_recorder()
    recorder.request(request(15, failure="decode read"))
    recorder.op(op(15, error="EIO"))
    built = result(recorder)
    assert health(built)["overall_status"] == "FAIL"
    assert health(built)["failures"] == ["1 request failed", "1 operation failed"]
    assert [row["name"] for row in health(built)["criteria"] if row["passed"]] == []
    assert {"failed_requests", "errors"} <= codes(built)
    assert built["honesty"]["errors"] == [{"tier": "storage", "verb": "read", "kind": "EIO", "count": 1}]


def test_an_interrupted_run_and_an_idle_one_pass_nothing() -> None:
    assert health(result(quick_recorder(), facts(interrupted="x")))["overall_status"] == "INCOMPLETE"
    assert health(result(empty_recorder()))["overall_status"] == "NOT MEASURED"
    nobody_served = empty_recorder()
    nobody_served.lookups.update(filled_recorder().lookups)
    assert health(result(nobody_served))["overall_status"] == "NOT MEASURED"


def test_asked_bytes_stand_beside_device_bytes() -> None:
    block = result(probes=PROBES)["honesty"]
    assert block["bytes"]["asked_read_bytes"] == block["bytes"]["device_read_bytes"] == 4 * GIB
    assert block["bytes"]["device_to_asked_written"] == 1.0
    assert block["bytes"]["page_cache_read_share"] == 0.0
    assert block["cpu_seconds_per_gib"] == pytest.approx(0.8 / 8)
    assert block["direct_io"] is True
    assert block["files_opened"] == {"direct": 120, "buffered": 0}
    assert block["arrival_lateness_ms"]["max"] == 2.0


def test_a_backend_that_opens_no_file_is_not_said_to_use_the_page_cache() -> None:
    found = result(run=facts(tiers=(tier(Tier.STORAGE, direct_io=False, files_opened_direct=0),)))
    assert found["honesty"]["direct_io"] is None
    assert found["honesty"]["files_opened"] is None
    assert "not_direct" not in codes(found)


def test_without_probes_nothing_is_claimed() -> None:
    block = result()["honesty"]
    assert block["bytes"]["device_read_bytes"] is None
    assert block["bytes"]["page_cache_read_share"] is None
    assert block["cpu_seconds_per_gib"] is None
    assert block["ceiling"] is None
    assert not {"page_cache", "device_excess", "client_bound"} & codes(result())


def test_reads_that_the_device_did_not_see_are_suspected_of_memory() -> None:
    probes = {**PROBES, "process_io": {"read_bytes": 1 * GIB, "written_bytes": 0}}
    built = result(probes=probes)
    assert built["honesty"]["bytes"]["page_cache_read_share"] == 0.75
    assert "page_cache" in codes(built)


def test_writes_that_had_not_reached_the_device_are_said() -> None:
    short = {**PROBES, "block_device": {**PROBES["block_device"], "written_bytes": GIB // 4}}
    built = result(probes=short)
    assert built["honesty"]["bytes"]["device_to_asked_written"] < 0.9
    assert "not_written" in codes(built)
    assert "not_written" not in codes(result(probes=PROBES))


def test_the_printed_block_shows_the_page_cache_share_and_the_ceiling() -> None:
    ceiling = Ceiling(requests_per_sec=1000.0, operations_per_sec=20_000.0, gib_per_sec=500.0)
    text = render_summary(built(probes=PROBES, ceiling=ceiling))
    assert "Read from the page cache" in text
    assert "20,000 ops/s" in text
    assert "500.0 GiB/s" in text


def test_a_device_that_takes_no_time_is_not_called_unread() -> None:
    recorder = empty_recorder()
    recorder.request(request(15, intended=14.5, storage=0.4))
    recorder.op(op(15, started=15))
    assert "no reads on the storage tier" not in render_summary(built(recorder))


def test_nfs_counters_stand_in_for_a_device() -> None:
    probes = {**PROBES, "block_device": None, "nfs": {"read_bytes": 2 * GIB, "written_bytes": 3 * GIB}}
    assert result(probes=probes)["honesty"]["bytes"]["device_to_asked_read"] == 0.5


def test_nfs_shows_the_time_of_the_answer_beside_that_of_the_operation_and_what_was_sent_again() -> None:
    counters = {"read_bytes": 2 * GIB, "written_bytes": 3 * GIB}
    counters |= {"read_operations": 100, "read_transmissions": 103, "read_timeouts": 3, "read_queue_ms": 10}
    counters |= {"read_rtt_ms": 200, "read_execute_ms": 450, "read_errors": 0, "write_operations": 0}
    found = result(probes={**PROBES, "block_device": None, "nfs": counters})
    service = found["honesty"]["nfs"]
    assert service["read"] == {
        **{"operations": 100, "retransmissions": 3, "timeouts": 3, "errors": 0},
        **{"queue_ms": 0.1, "rtt_ms": 2.0, "execute_ms": 4.5},
    }
    assert service["write"]["rtt_ms"] is None
    assert "nfs_retransmissions" in codes(found)


def test_without_counts_of_operations_nothing_is_said_of_nfs() -> None:
    counters = {"read_bytes": 2 * GIB, "written_bytes": 3 * GIB}
    for nfs in (None, counters):
        found = result(probes={**PROBES, "block_device": None, "nfs": nfs})
        assert found["honesty"]["nfs"] is None
        assert "nfs_retransmissions" not in codes(found)


def test_counters_say_nothing_about_a_tier_that_lies_on_no_counted_device() -> None:
    modelled = result(run=facts(tiers=(tier(Tier.STORAGE, modelled=True),)), probes=PROBES)
    elsewhere = result(probes={**PROBES, "block_device": None})
    for found in (modelled, elsewhere):
        counted = found["honesty"]["bytes"]
        assert counted["asked_read_bytes"] == 4 * GIB
        assert counted["page_cache_read_share"] is None
        assert counted["device_to_asked_read"] is None
        assert "page_cache" not in codes(found)
    assert modelled["honesty"]["cpu_seconds_per_gib"] is None


def test_offered_load_is_arrivals_over_what_the_servers_could_do_on_a_null_device_l2() -> None:
    # 11 arrivals in 11 s; a server needs 2 s on average without storage (generation 1 s, other 1 s).
    overloaded = result(config=Config(num_users=1))
    assert overloaded["honesty"]["offered_load"] == {
        "arrivals_per_sec": 1.0,
        "null_capacity_requests_per_sec": 0.5,
        "ratio": 2.0,
    }
    assert "overload" in codes(overloaded)
    relaxed = result(config=Config(num_users=3))
    # A fixed amount of work that was meant to come within 2 s, however long the device took for it.
    fixed = result(run=facts(arrivals_end_ns=facts().load_start_ns + ns(2)), config=Config(num_users=1))
    assert fixed["honesty"]["offered_load"]["arrivals_per_sec"] == 5.5
    assert relaxed["honesty"]["offered_load"]["ratio"] == pytest.approx(2 / 3)
    assert "overload" not in codes(relaxed)
    closed = result(config=Config(num_users=1, arrival="closed"))
    # Its servers are busy for 8 s of 10, and half of a request's service goes without storage.
    assert closed["honesty"]["offered_load"]["ratio"] == pytest.approx(0.4, rel=0.01)
    assert "overload" not in codes(closed), "users who wait for answers cannot overload"


def test_a_run_near_the_null_ceiling_is_client_bound() -> None:
    near = result(ceiling=Ceiling(requests_per_sec=0.24, gib_per_sec=100))
    assert near["honesty"]["ceiling"]["client_bound"] is True
    assert near["honesty"]["ceiling"]["share_reached"]["gib_per_sec"] == pytest.approx(0.008)
    assert "client_bound" in codes(near)
    far = result(ceiling=Ceiling(requests_per_sec=100, gib_per_sec=100))
    assert far["honesty"]["ceiling"]["client_bound"] is False
    assert "client_bound" not in codes(far)


def test_a_program_that_is_busy_with_its_pieces_is_client_bound_though_the_null_backend_is_far() -> None:
    """The null backend knows no pieces: what those cost shows in the processor time alone."""
    far = Ceiling(requests_per_sec=1e6, operations_per_sec=1e6, gib_per_sec=1e6)
    busy = result(probes={**PROBES, "cpu_seconds": 9.0}, ceiling=far)
    assert busy["honesty"]["ceiling"]["cores_used"] == pytest.approx(0.9)
    assert busy["honesty"]["ceiling"]["client_bound"] is True
    (warning,) = [item for item in busy["warnings"] if item["code"] == "client_bound"]
    assert "--io-size" in warning["remedy"]
    assert result(probes=PROBES, ceiling=far)["honesty"]["ceiling"]["client_bound"] is False


def waiting_recorder(started: float) -> Any:
    """Reads of the DRAM tier asked at 14 s and over at 15 s, whose copy began at `started`."""
    recorder = quick_recorder()
    recorder.op(op(15, started=started, submitted=14, tier=Tier.CPU))
    return recorder


def test_waiting_for_our_own_copying_threads_is_client_bound_and_no_verdict_on_the_memory_e11() -> None:
    far = Ceiling(requests_per_sec=1e6, operations_per_sec=1e6, gib_per_sec=1e6)
    tiers = (tier(Tier.CPU), tier(Tier.STORAGE))
    waiting = result(waiting_recorder(14.9), facts(tiers=tiers), ceiling=far)
    assert waiting["honesty"]["ceiling"]["dram_wait_share"] == pytest.approx(0.9, abs=0.01)
    assert waiting["honesty"]["ceiling"]["client_bound"] is True
    (warning,) = [item for item in waiting["warnings"] if item["code"] == "client_bound"]
    assert "--dram-threads" in warning["remedy"]
    (memory,) = [row for row in health(waiting)["criteria"] if row["name"] == "CPU RAM P95 < 150ms"]
    assert memory["passed"] is True
    copying = result(waiting_recorder(14.1), facts(tiers=tiers), ceiling=far)
    assert copying["honesty"]["ceiling"]["client_bound"] is False


def test_drops_from_the_last_tier_alone_bound_the_capacity_c3() -> None:
    recorder = filled_recorder()
    recorder.eviction(Eviction(ns(15), Tier.CPU, None, 1))
    assert "capacity_bound" not in codes(result(recorder))
    recorder.eviction(Eviction(ns(15), Tier.STORAGE, None, 1))
    warning = next(item for item in result(recorder)["warnings"] if item["code"] == "capacity_bound")
    assert "--storage-capacity-gb" in warning["remedy"]
    assert warning["message"].endswith("for lack of space: its capacity bounds this result.")


def test_drops_that_cost_no_hit_ask_for_no_more_capacity() -> None:
    recorder = empty_recorder()
    recorder.eviction(Eviction(ns(15), Tier.STORAGE, None, 1))
    for _ in range(100):
        recorder.lookup(Lookup(ns(13), Purpose.DECODE, HitType.USER, Outcome.HIT, Tier.STORAGE))
    warning = next(item for item in result(recorder)["warnings"] if item["code"] == "capacity_bound")
    assert warning["message"].endswith("for lack of space, but almost every lookup was a hit.")
    assert warning["remedy"] == "Compare only with runs of the same capacity."


def test_lateness_stands_beside_the_latency_that_includes_it() -> None:
    late = facts(lateness_ns=(ns(0.05),) * 100)
    (warning,) = [item for item in result(run=late)["warnings"] if item["code"] == "late_arrivals"]
    assert (
        "intended time (0.6% of the end-to-end p95, 8.000 s); latencies include that." in warning["message"]
    )


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("incomplete", {"interrupted": "stopped by SIGTERM"}),
        ("simulated", {"simulated": True}),
        ("modelled_tier", {"tiers": (tier(Tier.GPU, modelled=True), tier(Tier.STORAGE))}),
        ("not_direct", {"tiers": (tier(Tier.STORAGE, direct_io=False),)}),
        ("late_arrivals", {"lateness_ns": (ns(1),)}),
        ("shed", {"shed": 3}),
        ("half_done", {"under_way": 1}),
        ("unfinished", {"unfinished_ages_ns": (ns(1),) * 51}),
    ],
)
def test_a_doubt_about_the_run_is_a_warning_with_a_remedy(code: str, changes: dict[str, Any]) -> None:
    assert code not in codes(result())
    warning = next(item for item in result(run=facts(**changes))["warnings"] if item["code"] == code)
    assert warning["message"]
    assert warning["remedy"]


def test_a_lagging_loop_is_said() -> None:
    assert "event_loop_lag" not in codes(result(probes=PROBES))
    assert "event_loop_lag" in codes(result(probes={**PROBES, "event_loop_lag_ms": {"p99": 40.0}}))


def test_a_client_that_was_stopped_is_said_although_its_p99_is_good() -> None:
    lag = {"p99": 0.5, "max": 5988.0}
    found = result(probes={**PROBES, "event_loop_lag_ms": lag})
    stalled = next(item for item in found["warnings"] if item["code"] == "stalled")
    assert stalled["severity"] == "serious"
    assert "stalled for 6.0 s in a row" in stalled["message"]
    assert "stalled" not in codes(result(probes={**PROBES, "event_loop_lag_ms": {**lag, "max": 900.0}}))


@pytest.mark.parametrize("profile", ["latency", "throughput"])
def test_a_client_that_was_stopped_passes_nothing(profile: str) -> None:
    config = Config(performance_profile=profile, min_tokens_per_sec=1)
    stopped = {**PROBES, "event_loop_lag_ms": {"p99": 0.5, "max": 5988.0}}
    found = built(quick_recorder(), config=config, probes=stopped)
    assert health(result(quick_recorder(), config=config, probes=PROBES))["overall_status"] == "PASS"
    assert health(found.document())["overall_status"] == "NOT MEASURED"
    assert answer(found).status is not Status.YES


def test_few_trials_are_said_except_in_a_simulation() -> None:
    assert "few_trials" in codes(result())
    assert "few_trials" not in codes(result(trials=3))
    assert "few_trials" not in codes(result(run=facts(simulated=True)))


def test_a_short_window_says_that_steadiness_is_unknown() -> None:
    assert "too_short" in codes(result())
    assert result()["steady_state"]["verdict"] == "too short to tell"


def test_the_engines_own_warnings_come_first() -> None:
    given = noted("buffered", "no O_DIRECT", "use ext4")
    assert built(warnings=[given]).warnings[0] == given
