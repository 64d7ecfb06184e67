"""The wait for room in the last tier is named as the cause only where it takes most of the I/O time (C4)."""

import pytest

from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import Purpose, Verb
from kvspill.result.bottleneck import Binds, bottleneck
from kvspill.result.ranking import no_rank
from kvspill.result.schema import Result
from kvspill.result.warnings.kind import Severity
from unit.measure.rows import ns, op, request
from unit.result.sample import built, empty_recorder


def waiting(waited: float, count: int = 2) -> Recorder:
    """Ten requests that write for a second each; some of them wait for room so long before that."""
    recorder = empty_recorder()
    for number in range(10):
        at = 11 + number / 10
        start = at + (waited if number < count else 0.0)
        if number < count:
            recorder.room_wait(ns(at), ns(start), 1)
        recorder.op(op(start + 1, started=start, verb=Verb.WRITE, purpose=Purpose.PREFILL))
        recorder.cache_call(ns(at), ns(start + 1))
        recorder.request(request(start + 1, intended=at, started=at, storage=start + 1 - at))
    return recorder


def told(result: Result) -> dict[str, str]:
    return {item.code: item.message for item in result.warnings if item.code in ("crowded", "room_waits")}


def test_a_few_waits_are_a_note_that_spoils_nothing() -> None:
    result = built(waiting(0.1))
    assert told(result) == {
        "room_waits": "2 of 10 writes waited for room, 200.0 ms in all, 2.0% of the I/O time, because "
        "everything in the storage tier was in use."
    }
    (note,) = (item for item in result.warnings if item.code == "room_waits")
    assert note.severity == Severity.NOTE
    assert no_rank(None, ["room_waits"]) is None
    assert bottleneck(result).binds is Binds.DEVICE


def test_waits_that_cost_something_are_a_warning_but_not_the_cause_where_the_device_takes_longer() -> None:
    result = built(waiting(2.0))
    assert told(result)["crowded"].startswith(
        "2 of 10 writes waited for room, 4.000 s in all, 29% of the I/O time, because"
    )
    found = bottleneck(result)
    assert found.binds is Binds.DEVICE
    assert "71% of it the device's own time" in found.sentence, "the waits are not the device's"
    assert "room" not in found.sentence + found.helps


def test_the_largest_part_is_the_cause_with_its_share() -> None:
    found = bottleneck(built(waiting(3.0, count=10)))
    assert found.binds is Binds.ROOM
    assert "75% of it waiting for room" in found.sentence
    assert found.helps.startswith("Raise --storage-capacity-gb, or use ")


def test_on_a_saturated_device_the_waits_are_a_consequence_and_no_room_is_advised() -> None:
    """One I/O slot that is in use all the time: more room would let more requests wait for it."""
    result = built(waiting(3.0, count=10), config=Config(io_threads=1))
    assert result.number("storage_in_flight_mean") == pytest.approx(1.0)
    found = bottleneck(result)
    assert found.binds is Binds.DEVICE
    assert found.sentence.startswith("The device is saturated (1 I/O under way on average, 1 I/O slot): ")
    assert "75% of it waiting for room" in found.sentence
    assert "Use a faster device" in found.helps
    assert "--storage-capacity-gb" not in found.helps
    message = told(result)["crowded"]
    assert "The device was saturated" in message
    assert "limited concurrency" not in message
    assert no_rank(None, ["crowded"]) is not None, "C3: a crowded run has no rank"


def test_advice_names_only_what_can_be_set() -> None:
    """Nobody can set "smaller entries"; a run without reads has nothing that DRAM could serve."""
    assert bottleneck(built(waiting(0.1))).helps == "Use a faster device, or fewer --num-users."


@pytest.mark.parametrize(("from_s", "to_s", "inside"), [(2, 9, 0.0), (8, 12, 2.0), (19, 25, 1.0)])
def test_only_waits_inside_the_window_count(from_s: float, to_s: float, inside: float) -> None:
    """Those of the stage before, with more users, say nothing of this one."""
    recorder = waiting(0.0, count=0)
    recorder.room_wait(ns(from_s), ns(to_s), 1)
    result = built(recorder)
    assert result.number("total_room_wait_time") == inside
    assert bool(told(result)) is (inside > 0)


def test_writes_that_still_wait_at_the_end_are_among_those_asked_for() -> None:
    recorder = waiting(0.0, count=0)
    recorder.room_wait(ns(19), ns(21), 3)
    assert "3 of 13 writes" in " ".join(told(built(recorder)).values())
