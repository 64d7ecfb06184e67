"""Properties of the recorder under any rows: seconds add up, and the outside never matters."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvspill.measure.lanes import COMPONENTS
from kvspill.measure.recorder import Recorder
from kvspill.records import Completion, HitType, Lookup, OpRecord, Outcome, Purpose, Tier, Verb
from unit.measure.rows import ns, request

START, END = ns(10), ns(17.5)
times = st.integers(0, ns(30))


@st.composite
def ops(draw: st.DrawFn) -> OpRecord:
    submitted, started, finished = sorted(draw(st.tuples(times, times, times)))
    between = st.integers(started, finished)
    pieces = []
    for _ in range(draw(st.integers(0, 3))):
        first, last = sorted((draw(between), draw(between)))
        pieces.append((first, last, draw(st.integers(1, 10**6))))
    nbytes = draw(st.integers(1, 10**7))
    completion = Completion(
        submitted,
        started,
        finished,
        draw(st.integers(0, finished - started)),
        pieces,
        draw(st.sampled_from([None, None, None, "EIO", "cancelled"])),
    )
    return OpRecord(
        draw(st.sampled_from(Tier)),
        draw(st.sampled_from(Verb)),
        draw(st.sampled_from(Purpose)),
        "key",
        nbytes,
        nbytes + draw(st.integers(0, 4095)),
        completion,
    )


def observed(rows: list[OpRecord]) -> Recorder:
    recorder = Recorder(START, END)
    for row in rows:
        recorder.op(row)
    return recorder


def state(recorder: Recorder) -> list[Any]:
    """All that any metric is computed from."""
    lanes = [
        (
            dict(lane.ops),
            dict(lane.nbytes),
            lane.moved_bytes,
            lane.failed_moved_bytes,
            dict(lane.errors),
            lane.pieces.to_dict(),
            [lane.latencies.component(name).to_dict() for name in COMPONENTS],
            [lane.demotion_latencies.component(name).to_dict() for name in COMPONENTS],
        )
        for lane in recorder.lanes()
    ]
    tally = recorder.requests
    parts = {name: histogram.to_dict() for name, histogram in tally.parts.items()}
    return [lanes, recorder.timeline.columns(END), parts, tally.tokens, recorder.lookups]


@given(st.lists(ops(), max_size=30))
def test_seconds_of_a_lane_sum_to_its_bytes_s4(rows: list[OpRecord]) -> None:
    recorder = observed(rows)
    columns = recorder.timeline.columns(END)
    for lane in recorder.lanes():
        assert sum(columns.get(lane.column, [])) == lane.byte_count
        assert all(amount >= 0 for amount in columns.get(lane.column, []))


@given(st.lists(ops(), max_size=30))
def test_no_more_bytes_count_than_were_asked_for(rows: list[OpRecord]) -> None:
    recorder = observed(rows)
    for lane in recorder.lanes():
        asked = sum(row.nbytes for row in rows if (row.tier, row.verb) == (lane.tier, lane.verb))
        assert lane.byte_count <= asked


@given(st.lists(ops(), max_size=20), st.data())
def test_rows_outside_the_window_change_nothing_s3(rows: list[OpRecord], data: st.DataObject) -> None:
    recorder = observed(rows)
    before = state(recorder)
    outside = [row for row in data.draw(st.lists(ops(), max_size=20)) if not _touches(row)]
    for row in outside:
        recorder.op(row)
    for at in (0.0, 9.99, 17.51, 29.0):
        recorder.request(request(at, tokens=5, storage=1))
        recorder.lookup(Lookup(ns(at), Purpose.DECODE, HitType.USER, Outcome.HIT, Tier.CPU))
    assert state(recorder) == before


def _touches(row: OpRecord) -> bool:
    completion = row.completion
    return completion.finished_ns >= START and completion.submitted_ns <= END


@given(st.lists(ops(), max_size=15))
def test_the_order_of_rows_does_not_matter(rows: list[OpRecord]) -> None:
    assert state(observed(rows)) == state(observed(rows[::-1]))


@given(st.lists(ops(), max_size=15), st.integers(START, END))
def test_an_interrupt_at_a_time_equals_a_window_that_ends_there(rows: list[OpRecord], at_ns: int) -> None:
    rows.sort(key=lambda row: row.completion.finished_ns)
    interrupted = Recorder(START, END)
    for row in rows:
        if row.completion.finished_ns >= at_ns:
            interrupted.close_window(at_ns)
        interrupted.op(row)
    interrupted.close_window(at_ns)
    planned = Recorder(START, at_ns)
    for row in rows:
        planned.op(row)
    assert state(interrupted)[0] == state(planned)[0]
