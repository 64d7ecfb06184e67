"""Storage that stands still, by reads and writes or by deletes alone, passes nothing (S16)."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import Purpose, Tier, Verb
from kvspill.result.answer import Status, answer
from kvspill.result.bottleneck import Binds, bottleneck
from kvspill.result.ranking import no_rank
from unit.measure.rows import ns, op, request
from unit.result.sample import built, codes, facts
from unit.result.test_doubts import health, quick_recorder


def still_recorder(still: range) -> Any:
    """Like the quick one, but a call is under way the whole time, and nothing moves in these seconds."""
    recorder = quick_recorder()
    for second in range(10):
        recorder.timeline.note("storage_in_flight", ns(10.5 + second), 1)
        if second not in still:
            recorder.op(op(10.9 + second, started=10.8 + second))
    return recorder


@pytest.mark.parametrize("profile", ["latency", "throughput"])
def test_storage_that_stood_still_passes_nothing_although_its_percentiles_are_good_s16(profile: str) -> None:
    config = Config(performance_profile=profile, min_tokens_per_sec=1)
    found = built(still_recorder(range(1, 4)), config=config)
    assert found.honesty.storage_still_seconds == 3
    verdict = health(found.document())
    assert (verdict["overall_status"], verdict["passed_count"]) == ("FAIL", 0)
    assert verdict["failures"] == ["storage stood still for 3.0 s of 10.0 s"]
    assert "storage_stalled" in codes(found)
    assert no_rank(None, codes(found)) is not None
    assert answer(found).status is not Status.YES
    assert "storage_stalled" not in codes(built(still_recorder(range(1, 2)), config=config))


def test_a_standstill_at_the_end_lasts_until_what_was_in_flight_has_returned() -> None:
    late = facts(finished_ns=ns(22.5))
    assert built(still_recorder(range(9, 10)), late).honesty.storage_still_seconds == 3.5
    assert "storage_stalled" in codes(built(still_recorder(range(9, 10)), late))
    assert built(still_recorder(range(8, 9)), late).honesty.storage_still_seconds == 1


def test_storage_that_nobody_asks_does_not_stand_still() -> None:
    idle = quick_recorder()
    for second in range(10):
        idle.timeline.note("storage_in_flight", ns(10.5 + second), 0)
    assert built(idle).honesty.storage_still_seconds == 0


def deleting_recorder(seconds: float, until: float) -> Any:
    """Like the quick one, but from 12 s on nothing but deletes is under way, each for so long."""
    recorder = quick_recorder()
    for second in range(10):
        recorder.timeline.note("storage_in_flight", ns(10.5 + second), 0)
    begun = 12.0
    while begun < until:
        recorder.op(op(begun + seconds, started=begun, verb=Verb.DELETE, purpose=Purpose.EVICTION))
        begun += seconds
    return recorder


@pytest.mark.parametrize("profile", ["latency", "throughput"])
def test_storage_whose_deletes_stall_passes_nothing(profile: str) -> None:
    """A request that waits for room meets no slow read and no slow write (S16)."""
    config = Config(performance_profile=profile, min_tokens_per_sec=1)
    found = built(deleting_recorder(3.0, until=18.0), config=config)
    # From 14.9 to 15 s a read and a write were under way, too.
    assert found.honesty.storage_delete_still_seconds == pytest.approx(5.9)
    verdict = health(found.document())
    assert (verdict["overall_status"], verdict["passed_count"]) == ("FAIL", 0)
    assert verdict["failures"] == ["storage stood still for 5.9 s of 10.0 s, its deletes alone under way"]
    stalled = next(item for item in found.warnings if item.code == "storage_stalled")
    assert "5.9 s in total" in stalled.message
    assert "deletes" in stalled.message
    assert no_rank(None, codes(found)) is not None
    assert answer(found).status is not Status.YES


def test_a_delete_that_the_end_finds_under_way_is_counted_until_it_returns() -> None:
    recorder = deleting_recorder(3.0, until=12.0)
    recorder.op(op(22.0, started=19.0, verb=Verb.DELETE, purpose=Purpose.EVICTION))
    found = built(recorder, facts(finished_ns=ns(22.0)))
    assert found.honesty.storage_delete_still_seconds == 3.0
    assert "storage_stalled" in codes(found)


def test_a_delete_that_never_returned_is_counted() -> None:
    recorder = quick_recorder()
    recorder.unanswered(Tier.STORAGE, Verb.DELETE, ns(17.0), 1, in_device=True)
    assert built(recorder, facts(finished_ns=ns(24.0))).honesty.storage_delete_still_seconds == 7.0


@pytest.mark.parametrize(("allocs", "advised"), [(0, False), (4, True)])
def test_more_allocations_are_advised_only_where_they_are_limited(allocs: int, advised: bool) -> None:
    """The request spent 0.9 s in storage, its operations 0.15 s: the rest was a wait."""
    recorder = quick_recorder()
    recorder.request(request(17, intended=16.1, storage=0.9))
    recorder.cache_call(ns(16.1), ns(17))
    found = bottleneck(built(recorder, config=Config(max_concurrent_allocs=allocs)))
    assert found.binds is Binds.ROOM
    assert ("--max-concurrent-allocs" in found.helps) is advised


def test_slow_deletes_that_work_are_no_standstill() -> None:
    found = built(deleting_recorder(0.05, until=18.0))
    assert found.honesty.storage_delete_still_seconds == 0
    assert "storage_stalled" not in codes(found)


def test_slow_deletes_beside_reads_and_writes_are_no_standstill() -> None:
    recorder = deleting_recorder(3.0, until=18.0)
    for second in range(12, 18):
        recorder.op(op(second + 1.0, started=float(second)))
    found = built(recorder)
    assert found.honesty.storage_delete_still_seconds == 0
    assert "storage_stalled" not in codes(found)
