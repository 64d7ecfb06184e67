"""What several recorders counted of one window is what a single one would have counted (R3)."""

import pickle
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvspill.measure.histograms import Histogram
from kvspill.measure.recorder import Recorder
from kvspill.measure.requests import SAMPLE_ROWS, Sample
from kvspill.measure.storage_speed import BUSY, SLOW_DELETES
from kvspill.measure.timeline import Timeline
from kvspill.records import NS_PER_SEC, QoS, RequestRecord
from unit.measure.rows import ns, op, request
from unit.measure.test_recorder_properties import END, START, ops, state

requests = st.builds(
    request,
    st.floats(0, 30),
    intended=st.floats(0, 5),
    storage=st.floats(0, 3),
    generation=st.floats(0, 3),
    tokens=st.integers(0, 500),
    qos=st.sampled_from(QoS),
    failure=st.sampled_from([None, None, "EIO"]),
)


def tally(recorder: Recorder) -> list[Any]:
    found = recorder.requests
    histograms = [*found.parts.values(), *found.by_qos.values(), *found.added_by_qos.values()]
    return [
        found.completed,
        found.tokens,
        dict(found.failed),
        found.generation_ns,
        [histogram.to_dict() for histogram in histograms],
        recorder.timeline.columns(END),
        recorder.requests_over_time.to_dict(),
        [lane.latencies.over_time() for lane in recorder.lanes()],
        [(dict(lane.bytes_by_entry), lane.syncs.to_dict()) for lane in recorder.lanes()],
    ]


@given(st.lists(st.tuples(st.integers(0, 2), ops())), st.lists(st.tuples(st.integers(0, 2), requests)))
def test_parts_merge_into_the_whole_without_loss_r3(
    rows: list[tuple[int, Any]], asked: list[tuple[int, RequestRecord]]
) -> None:
    whole = Recorder(START, END)
    parts = [Recorder(START, END) for _rank in range(3)]
    for rank, row in rows:
        whole.op(row)
        parts[rank].op(row)
    for rank, record in asked:
        whole.request(record)
        parts[rank].request(record)
    busy = [sum(part.timeline.columns(END).get(BUSY, [])) for part in parts]
    # As they travel from rank to rank.
    merged, *others = (pickle.loads(pickle.dumps(part)) for part in parts)
    for other in others:
        merged.merge(other)
    assert sum(merged.timeline.columns(END).get(BUSY, [])) == sum(busy), "nobody knows here what ranks share"
    assert without_busy(state(merged)) == without_busy(state(whole))
    assert without_busy(tally(merged)) == without_busy(tally(whole))


def without_busy(found: list[Any]) -> list[Any]:
    """A single recorder counts once what two ranks were at work on at the same time."""
    alone = {BUSY, SLOW_DELETES}
    return [
        {name: value for name, value in part.items() if name not in alone} if isinstance(part, dict) else part
        for part in found
    ]


@given(st.lists(st.integers(-5, 10**14)))
def test_a_histogram_travels_whole(values_ns: list[int]) -> None:
    histogram = Histogram()
    histogram.record_all(values_ns)
    travelled = pickle.loads(pickle.dumps(histogram))
    assert travelled.to_dict() == histogram.to_dict()
    assert travelled.statistics_ms() == histogram.statistics_ms()
    travelled.merge(histogram)
    travelled.record(7)
    assert travelled.count == 2 * len(values_ns) + 1


def test_windows_of_different_clocks_are_brought_together() -> None:
    shift_ns = 123 * NS_PER_SEC + 17
    here, there = Recorder(ns(10), ns(20)), Recorder(ns(10) + shift_ns, ns(20) + shift_ns)
    here.op(op(12.5))
    there.op(op(12.5 + shift_ns / NS_PER_SEC, nbytes=500))
    there.move(-shift_ns)
    here.merge(there)
    assert here.timeline.columns(here.window_end_ns)["storage_read_bytes"] == [0, 0, 1500, *[0] * 7]
    assert here.window_seconds == 10.0


def sampled(rank: int, rows: int) -> Sample:
    """The sample of a rank that saw so many rows, each of which names the rank and its own place."""
    sample = Sample(SAMPLE_ROWS)
    for place in range(rows):
        sample.add((rank, place))
    return sample


@pytest.mark.parametrize(("ranks", "rows"), [(2, 4000), (3, 999), (5, 1000), (64, 4000), (64, 10)])
def test_ranks_that_saw_as_many_requests_have_equal_shares_of_the_sample(ranks: int, rows: int) -> None:
    whole = Sample(SAMPLE_ROWS)
    for rank in range(ranks):
        whole.merge(sampled(rank, rows))
    shares = Counter(rank for rank, _place in whole.rows)
    assert len(whole.rows) <= SAMPLE_ROWS
    assert len(shares) == ranks
    assert max(shares.values()) - min(shares.values()) <= 1


def test_a_rank_that_saw_twice_as_many_requests_has_twice_the_share_of_the_sample() -> None:
    for order in ((4000, 8000), (8000, 4000)):
        whole = Sample(SAMPLE_ROWS)
        for rows in order:
            whole.merge(sampled(rows, rows))
        shares = Counter(rank for rank, _place in whole.rows)
        assert abs(shares[8000] - 2 * shares[4000]) <= 2
        gaps = {late - early for (_, early), (_, late) in pairwise(whole.rows) if late > early}
        assert len(gaps) == 1, "even over each rank's time"


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("counts", [(4000, 4000), (4000, 4001), (4001, 4000)])
def test_the_requests_of_two_ranks_are_in_the_sample_alike(counts: tuple[int, int], apart: bool) -> None:
    """One request more makes the sample of a rank half as dense, and must not halve its share."""
    parts = [Recorder(START, END) for _rank in counts]
    for rank, part in enumerate(parts):
        for _place in range(counts[rank]):
            part.request(request(15, storage=1 + rank))
    merged = Recorder(START, END) if apart else parts.pop(0)
    for part in parts:
        merged.merge(part)
    shares = Counter(row[1] for row in merged.requests.sample.rows)
    assert abs(shares[ns(1)] - shares[ns(2)]) <= 1


def test_states_of_the_ranks_add_up_and_hold() -> None:
    here, there = Timeline(0), Timeline(0)
    here.note("queued", ns(0.5), 3)
    there.note("queued", ns(0.5), 4)
    there.note("queued", ns(2.5), 1)
    here.merge(there)
    assert here.columns(ns(4))["queued"] == [7, 7, 4, 4]


def test_a_long_window_and_a_short_one_have_the_same_steps() -> None:
    here, there = Timeline(0), Timeline(0)
    here.add("tokens", ns(250_000), 5)
    there.add("tokens", ns(1), 7)
    assert (here.step_seconds, there.step_seconds) == (4, 1)
    there.merge(here)
    assert there.step_seconds == 4
    assert sum(there.columns(ns(250_001))["tokens"]) == 12
