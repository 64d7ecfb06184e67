"""Latencies over time: every value in its step and band, whatever the length of the window."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvspill.measure.heatmap import STEPS_MAX, LatencyMap
from kvspill.measure.recorder import Recorder
from kvspill.records import NS_PER_MS, NS_PER_SEC, Tier, Verb
from unit.measure.rows import ns, op, request

values = st.lists(
    st.tuples(st.integers(0, 1000 * NS_PER_SEC), st.integers(NS_PER_MS // 1000, 900 * NS_PER_SEC)), min_size=1
)


@given(values)
def test_every_value_is_in_one_cell_that_holds_it(rows: list[tuple[int, int]]) -> None:
    found = LatencyMap(0)
    for at_ns, latency_ns in rows:
        found.record(at_ns, latency_ns)
    data = found.to_dict()
    assert data is not None
    counts, edges = np.array(data["counts"]), data["edges_ms"]
    assert counts.shape[1] == len(edges) - 1
    assert len(counts) <= STEPS_MAX
    assert counts.sum() == len(rows)
    for number, row in enumerate(counts):
        step_ns = data["step_seconds"] * NS_PER_SEC
        mine = [latency for at, latency in rows if at // step_ns == number]
        assert row.sum() == len(mine)
        # A value on an edge may fall on either side of it by rounding.
        for (low, high), count in zip(pairwise(edges), row, strict=True):
            inside = [v for v in mine if low * (1 + 1e-9) < v / NS_PER_MS < high * (1 - 1e-9)]
            assert len(inside) <= count


@pytest.mark.parametrize(("last_second", "step_seconds"), [(0, 1), (119, 1), (120, 2), (239, 2), (240, 4)])
def test_a_longer_window_has_wider_steps(last_second: int, step_seconds: int) -> None:
    found = LatencyMap(0)
    for second in range(last_second + 1):
        found.record(second * NS_PER_SEC, NS_PER_MS)
    data = found.to_dict()
    assert data is not None
    assert data["step_seconds"] == step_seconds
    assert sum(map(sum, data["counts"])) == last_second + 1


def test_nothing_recorded_is_none() -> None:
    assert LatencyMap(0).to_dict() is None


def test_a_recorder_keeps_storage_and_requests_over_time() -> None:
    recorder = Recorder(ns(10), ns(20))
    recorder.op(op(12.5, started=12.4))
    recorder.op(op(12.6, started=12.5, verb=Verb.WRITE))
    recorder.op(op(12.6, started=12.5, tier=Tier.CPU))
    recorder.op(op(12.7, started=12.5, error="EIO"))
    recorder.op(op(9, started=8))
    recorder.request(request(15, intended=12))
    reads = recorder.lane(Tier.STORAGE, Verb.READ).latencies.over_time()
    assert reads is not None
    assert reads["counts"] == [[0], [0], [1]]
    assert reads["edges_ms"][0] < 100.1
    assert reads["edges_ms"][1] > 100
    assert recorder.lane(Tier.STORAGE, Verb.DELETE).latencies.over_time() is None
    requests = recorder.requests_over_time.to_dict()
    assert requests is not None
    assert [sum(row) for row in requests["counts"]] == [0, 0, 0, 0, 0, 1]


def test_operations_are_counted_in_the_second_they_end_and_failed_ones_are_not() -> None:
    recorder = Recorder(ns(10), ns(14))
    for finished in (9.5, 10.2, 10.9, 12.1, 14.5):
        recorder.op(op(finished, started=finished - 0.1))
    recorder.op(op(11.5, error="EIO"))
    recorder.op(op(11.6, verb=Verb.DELETE))
    columns = recorder.timeline.columns(ns(14))
    assert columns["storage_read_ops"] == [2, 0, 1, 0]
    assert "storage_delete_ops" not in columns
