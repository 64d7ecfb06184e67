"""The advice: each sentence follows from figures, and what was not measured is named instead of guessed."""

from dataclasses import replace
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.result.warnings.known import KINDS
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.suite.advice import advise
from kvspill.suite.facts import Figures, TierFigures, figures


def tier(
    read: float = 1.0,
    modelled: bool = False,
    device_share: float = 0.5,
    busy_ms: float = 1000.0,
    read_part: float = 1.0,
) -> TierFigures:
    return TierFigures(
        limit_gib=2.0,
        entries=3,
        read_gib_per_sec=read,
        write_gib_per_sec=0.1,
        read_p95_ms=100.0,
        read_device_p95_ms=100.0 * device_share,
        read_mean_ms=50.0,
        read_device_mean_ms=50.0 * device_share,
        busy_ms=busy_ms,
        read_busy_ms=busy_ms * read_part,
        modelled=modelled,
    )


def row(
    name: str,
    storage_ms: float = 100.0,
    generation_ms: float = 100.0,
    queue_ms: float = 0.0,
    tiers: dict[str, TierFigures] | None = None,
    **changes: object,
) -> Figures:
    tiers = tiers if tiers is not None else {"storage": tier()}
    values: dict[str, object] = {
        "name": name,
        "users": 10,
        "tokens_per_sec": 100.0,
        "completed": 200,
        "unfinished": 0,
        "failed": 0,
        "end_to_end_ms": {"mean": storage_ms + generation_ms + queue_ms},
        "queue_ms": {"mean": queue_ms},
        "storage_io_ms": {"mean": storage_ms, "p95": storage_ms},
        "generation_ms": {"mean": generation_ms},
        "other_ms": {"mean": 0.0},
        "hit_rate": 0.9,
        "tiers": tiers,
        "read_share": dict.fromkeys(tiers, 1 / len(tiers)),
        "simulated": False,
        "warnings": (),
        "autoscaling": None,
        "status": "yes",
    }
    return Figures(**{**values, **changes})  # type: ignore[arg-type]


def advice(*rows: Figures) -> str:
    return "\n".join(advise({item.name: item for item in rows}))


def test_nothing_measured_means_nothing_said() -> None:
    assert advise({}) == ["No scenario has a result yet."]


def test_the_limit_of_the_storage_is_that_of_the_saturated_row() -> None:
    text = advice(row("storage-only"), row("storage-saturation", tiers={"storage": tier(read=3.0)}))
    assert "The storage gave at most 3.00 GiB/s reading" in text
    assert "at most 50.00 ms in the device" in text


def test_a_calm_row_may_hold_the_highest_figure_once_another_was_pressed() -> None:
    calm = row("storage-only", storage_ms=10, generation_ms=1000, tiers={"storage": tier(read=3.0)})
    text = advice(calm, row("storage-saturation", tiers={"storage": tier(read=2.5)}))
    assert "at most 3.00 GiB/s reading" in text
    assert "run storage-saturation" not in text


def test_a_storage_that_was_not_pressed_has_no_known_limit() -> None:
    text = advice(row("storage-only", storage_ms=10, generation_ms=1000))
    assert "its limit is unknown; run storage-saturation" in text
    assert "at most 1.00 GiB/s" not in text


def test_the_bottleneck_is_said_in_the_words_of_the_row_s_own_result() -> None:
    found = row("production", because="Cache I/O takes 75% of a request's service time.")
    assert "Bottleneck with 10 users (production): Cache I/O takes 75% of a request's" in advice(found)
    few = replace(found, completed=29)
    assert "(production; rough, of 29 requests only): Cache I/O takes" in advice(few)


def both(cpu: float = 1.0) -> dict[str, TierFigures]:
    return {"cpu": tier(cpu), "storage": tier()}


def test_dram_is_advised_where_the_same_users_get_more() -> None:
    text = advice(
        row("storage-only", storage_ms=400),
        row("cpu-storage", storage_ms=100, tokens_per_sec=190.0, tiers=both()),
    )
    assert "DRAM in front of the storage (2.0 GiB DRAM) serves 1.9 times as much" in text
    assert "100 -> 190 tok/s, I/O of a request 400.0 ms -> 100.0 ms" in text
    assert "To buy first: DRAM in front of the storage" in text


def test_no_memory_is_advised_where_io_is_not_what_a_request_waits_for() -> None:
    text = advice(
        row("storage-only", storage_ms=40, generation_ms=4000),
        row("cpu-storage", storage_ms=10, generation_ms=4000, tokens_per_sec=101.0, tiers=both()),
    )
    assert "To buy first: nothing in front of the storage" in text


def test_a_modelled_gpu_is_labelled_and_never_advised() -> None:
    tiers = {"gpu": tier(modelled=True), **both()}
    text = advice(
        row("storage-only", storage_ms=400),
        row("cpu-storage", tokens_per_sec=150.0, tiers=both()),
        row("gpu-cpu-storage", tokens_per_sec=900.0, tiers=tiers),
    )
    assert "2.0 GiB GPU memory (modelled)" in text
    assert "To buy first: DRAM in front of the storage" in text
    assert "Figures with GPU memory are modelled" in text


def test_a_set_up_that_serves_less_is_called_so() -> None:
    text = advice(row("storage-only"), row("cpu-storage", tokens_per_sec=50.0, tiers=both()))
    assert "serves less than storage alone" in text


def test_few_requests_are_a_doubt() -> None:
    assert "production: fewer than 100 requests" in advice(row("production", completed=99))
    assert "fewer than 100" not in advice(row("production", completed=100))


def test_a_faster_drive_saves_at_most_half_of_the_io() -> None:
    text = advice(row("production", storage_ms=100, generation_ms=100))
    assert "50% device time" in text
    assert "would take about 50% off the I/O of a request and 25% off its whole service at most" in text
    shared = row("production", tiers={"cpu": tier(busy_ms=3000.0), "storage": tier(busy_ms=1000.0)})
    assert "storage takes 25% of the tiers' time" in advice(shared)
    assert "about 12% off the I/O of a request and 6% off its whole service" in advice(shared)
    idle = row("production", tiers={"cpu": tier(), "storage": tier(busy_ms=1.0)})
    assert "a faster drive would change nothing" in advice(idle)


def test_a_drive_that_is_only_written_can_still_be_what_requests_wait_for() -> None:
    """It was said that a faster drive would change nothing, beside a row whose storage bound it."""
    tiers = {"cpu": tier(), "storage": tier(read_part=0.001)}
    text = advice(row("production", tiers=tiers, read_share={"cpu": 1.0, "storage": 0.0}))
    assert "storage takes 50% of the tiers' time, almost all of it for writing; a drive of twice" in text
    assert "change nothing" not in text


def test_a_drive_that_serves_few_of_the_bytes_read_is_not_said_to_write_for_that() -> None:
    slow = {"cpu": tier(), "storage": tier(read_part=0.9, device_share=0.5)}
    text = advice(row("production", tiers=slow, read_share={"cpu": 0.995, "storage": 0.005}))
    assert "storage takes 50% of the tiers' time, and a storage read is 50% device time; a drive" in text


def test_the_search_for_users_is_reported_with_its_reason() -> None:
    found: dict[str, Any] = {"concluded": True, "users": 23, "reason": "confirmed"}
    assert "can serve: 23 (confirmed)" in advice(row("autoscale", autoscaling=found))
    bounded = {"concluded": True, "users": 14, "reason": "The highest load allowed stays below"}
    assert "can serve: at least 14" in advice(row("autoscale", autoscaling=bounded))
    open_end = {"concluded": False, "users": 23, "reason": "Not concluded: 40 s more."}
    assert "no verdict yet. Not concluded: 40 s more." in advice(row("autoscale", autoscaling=open_end))
    assert "There was no search for the number of users" in advice(row("production"))


def test_doubts_name_their_rows_but_not_what_is_meant_to_be_so() -> None:
    overloaded = row("storage-saturation", warnings=("overload",))
    memory = row("cpu-only", tiers={"cpu": tier()}, warnings=("capacity_bound",))
    assert "storage-saturation: " not in advice(overloaded, memory)
    assert "cpu-only: " not in advice(overloaded, memory)
    overload = row("production", warnings=("overload",))
    assert "production: more was asked" in advice(overload), "also of users who wait and share servers"
    assert "more was asked" not in advice(replace(overload, completed=29))
    assert "cpu-storage: entries were dropped" in advice(
        row("cpu-storage", tiers=both(), warnings=("capacity_bound",))
    )


def test_more_capacity_is_said_to_help_only_where_lookups_missed() -> None:
    dropped = row("cpu-storage", tiers=both(), warnings=("capacity_bound",), hit_rate=0.9)
    assert "10% of the lookups missed, so more capacity alone would help" in advice(dropped)
    text = advice(replace(dropped, hit_rate=0.99))
    assert "would help" not in text
    assert "cpu-storage: entries were dropped for lack of space, but almost every lookup was a hit" in text


def test_engines_are_ranked_by_what_their_users_get() -> None:
    slow, fast = (
        row(f"engine-{name}", tokens_per_sec=tokens, recompute_gpus=3.0)
        for name, tokens in (("slow", 10.0), ("fast", 90.0))
    )
    text = advice(slow, fast)
    assert "1. fast: 90 tok/s, 90% of the blocks found, loads in place of 3.0 GPUs that recompute" in text
    assert "\n2. slow: 10 tok/s" in text
    assert "buy" not in text


def test_scenarios_of_ones_own_get_a_sentence_each() -> None:
    text = advice(
        row("mine", because="DRAM is slow."), row("search", autoscaling={"users": 9, "reason": "Found."})
    )
    assert "mine: 100 tok/s with 10 users. DRAM is slow." in text
    assert "search: ended at 9 users. Found." in text
    nothing = {"users": None, "reason": "Not concluded.", "concluded": False}
    assert "search: ended without a number of users. Not concluded." in advice(
        row("search", autoscaling=nothing)
    )
    assert "no search for" not in text


def pair(**changes: object) -> list[Figures]:
    """Storage alone and a better row with DRAM, which is changed."""
    with_dram = row("cpu-storage", storage_ms=100, tokens_per_sec=190.0, tiers=both())
    return [row("storage-only", storage_ms=400), replace(with_dram, **changes)]  # type: ignore[arg-type]


def test_no_purchase_is_advised_from_fewer_than_30_requests() -> None:
    text = advice(*pair(completed=29))
    assert "To buy first" not in text
    assert "times as much" not in text
    assert (
        "Too few requests to advise: cpu-storage 29 completed, 30 are needed; give longer --tier-seconds"
        in (text)
    )
    assert "To buy first: DRAM" in advice(*pair(completed=30))


@pytest.mark.parametrize(
    "code",
    ["memory_directory", "not_direct", "page_cache", "device_excess", "client_bound"],
)
def test_no_purchase_is_advised_from_a_disturbed_row(code: str) -> None:
    text = advice(*pair(warnings=(code,)))
    assert "To buy first" not in text
    assert "times as much" not in text
    assert "No purchase is advised from cpu-storage: " in text


def test_nothing_rests_on_a_faulty_or_a_crowded_row() -> None:
    for changes, reason in (
        ({"faults": "12 storage read EIO"}, "is faulty: 12 storage read EIO"),
        (
            {"warnings": ("crowded",)},
            'has the warning "writes waited for room" (the entries in use did not fit',
        ),
    ):
        text = advice(*pair(**changes))
        assert f"cpu-storage {reason}" in text
        assert "It is not ranked, and nothing here rests on it." in text
        assert "To buy first" not in text
        assert "times as much" not in text


def test_nobody_is_told_to_run_what_was_run_and_is_faulty() -> None:
    names = ("production", "cpu-storage", "storage-only", "storage-saturation", "autoscale")
    faulty = [row(name, faults="1 storage write EIO") for name in names]
    text = advice(row("cpu-only", tiers={"cpu": tier()}), *faulty)
    assert [word for word in ("Without a result", "; run ", "was not run", "unknown") if word in text] == []


@pytest.mark.parametrize("code", ["not_steady", "too_short", "half_done", "few_trials", "event_loop_lag"])
def test_a_purchase_with_reservations_is_provisional_and_the_doubt_is_told(code: str) -> None:
    text = advice(*pair(warnings=(code,)))
    assert "To buy first, provisionally (see the doubts below): DRAM" in text
    assert f"cpu-storage: {KINDS[code].means}." in text
    assert code not in text


@pytest.mark.parametrize("code", ["device_excess", "not_direct", "memory_directory", "no_verdict"])
def test_what_spoils_a_row_is_a_doubt(code: str) -> None:
    assert "production: " in advice(row("production", warnings=(code,)))


def test_a_faster_drive_is_not_judged_by_a_row_that_bears_no_advice() -> None:
    assert "twice the speed" not in advice(row("production", completed=12))
    assert "give longer --production-seconds" in advice(row("production", completed=12))
    assert "twice the speed" not in advice(row("production", warnings=("memory_directory",)))


def test_more_dram_that_serves_less_is_named_as_a_contradiction() -> None:
    alone = row("cpu-only", tokens_per_sec=120.0, tiers={"cpu": tier()})
    text = advice(*pair(), alone)
    assert "cpu-only with 2.0 GiB DRAM serves less than cpu-storage with 2.0 GiB (120 and 190 tok/s)" in text
    assert "contradict each other" in text
    assert "To buy first" not in text
    explained = advice(*pair(), replace(alone, hit_rate=0.5))
    assert "50% and 90% of their lookups were hits" in explained
    assert "To buy first: DRAM" in explained


def test_the_most_that_was_written_is_looked_for_on_its_own() -> None:
    pressed = row("storage-saturation", tiers={"storage": replace(tier(read=2.0), write_gib_per_sec=0.3)})
    other = row("production", tiers={"storage": replace(tier(read=0.5), write_gib_per_sec=0.7)})
    assert "2.00 GiB/s reading (storage-saturation" in advice(pressed, other)
    assert "0.70 GiB/s writing (production)" in advice(pressed, other)


def test_the_most_of_the_storage_is_looked_for_in_every_row_stage_and_the_idle_probe() -> None:
    pressed = row("storage-saturation", tiers={"storage": tier(read=2.0)})
    search = row("autoscale", tiers={"storage": tier(read=2.5)}, stage_storage_gib_per_sec=3.5)
    text = "\n".join(advise({item.name: item for item in (pressed, search)}, 4.25))
    assert "at most 2.50 GiB/s reading (autoscale" in text
    assert (
        "In a stage of autoscale it moved 3.50 GiB/s. Idle, before the first row, it read 4.25 GiB/s." in text
    )
    cached = advice(replace(pressed, warnings=("not_direct",)))
    assert "Memory served at least part of that, so it is not the limit of a device." in cached


def test_a_search_with_thin_evidence_has_no_verdict() -> None:
    classes: dict[str, Any] = {"interactive": {}, "batch": {}}
    found: dict[str, Any] = {
        "concluded": True,
        "users": 9,
        "reason": "The highest load allowed stays below",
        "qos": classes,
    }
    none = {**found, "no_verdict": ["interactive", "batch"]}
    text = advice(row("autoscale", autoscaling=none))
    assert "can serve: no verdict: no class had enough requests in the answer's window" in text
    assert "at least 9" not in text
    some = {**found, "no_verdict": ["batch"]}
    assert "at least 9 (the highest load allowed stays below; no verdict for batch)" in advice(
        row("autoscale", autoscaling=some)
    )
    assert "no verdict: 29 requests" in advice(row("autoscale", autoscaling=some, completed=29))
    short = row("autoscale", autoscaling=some, completed=60, warnings=("too_short",))
    assert "no verdict: the answer's window was short and had only 60 requests" in advice(short)


def test_a_peak_that_was_not_found_is_no_peak() -> None:
    peak = {"concluded": False, "users": 8, "reason": "Not concluded: 9 so far.", "peak_throughput": 9.0}
    text = advice(row("storage-only"), row("capacity-autoscale", autoscaling=peak))
    assert "Peak throughput of the storage: no verdict. Not concluded: 9 so far." in text


def test_engines_that_never_evict_and_were_full_are_ranked_by_capacity() -> None:
    full = row("engine-full", tokens_per_sec=10.0, stopped_storing=True)
    text = advice(full, row("engine-other", tokens_per_sec=20.0))
    assert "full never evicts and filled the tier" in text
    assert "this ranking is then by capacity" in text
    few = advice(row("engine-a"), row("engine-b"), row("engine-c", completed=3, tokens_per_sec=900.0))
    assert "Not ranked because of too few requests or a disturbance: c (900 tok/s)." in few
    assert "1. a" in few


def test_an_engine_that_uses_the_page_cache_is_ranked_with_it() -> None:
    cached = row("engine-cached", tokens_per_sec=30.0, warnings=("not_direct",))
    text = advice(cached, row("engine-other", tokens_per_sec=20.0))
    assert "1. cached: 30 tok/s, 90% of the blocks found, through the page cache.\n2. other" in text
    kept = row("engine-kept", tokens_per_sec=40.0, warnings=("page_cache_kept", "not_written", "not_direct"))
    assert "1. kept: 40 tok/s, 90% of the blocks found, through the page cache." in advice(kept, cached)


@pytest.mark.parametrize(("capacity_gb", "stopped"), [(1.0, True), (64.0, False)])
def test_a_tier_that_never_evicts_is_seen_to_be_full(capacity_gb: float, stopped: bool) -> None:
    small = Config(
        model="tiny-1b",
        num_users=4,
        duration=60.0,
        cpu_mem_gb=0.0,
        gpu_mem_gb=0.0,
        storage_capacity_gb=capacity_gb,
        storage_eviction_policy="none",
        block_tokens=256,
        io_model="prefix",
    )
    result = run_trials(make_plan(small, True), Progress(quiet=True))
    assert figures("engine-x", result).stopped_storing is stopped
