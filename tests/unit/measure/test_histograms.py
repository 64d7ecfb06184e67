"""Histograms: three digits, exact count, mean and maximum, and a form that survives the result file."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvspill.measure.histograms import HIGHEST_NS, PERCENTILES, Histogram, merged

values_ns = st.lists(st.integers(0, HIGHEST_NS), min_size=1, max_size=200)


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record_all(values)
    return histogram


def test_nothing_recorded_is_none_and_not_zero() -> None:
    empty = Histogram()
    assert empty.count == 0
    assert empty.mean_ns is None
    assert empty.max_ns is None
    assert empty.statistics_ms() is None
    assert empty.to_dict() is None


def test_one_value_is_all_its_statistics_exactly() -> None:
    statistics = filled([1_234_567]).statistics_ms()
    assert statistics is not None
    assert set(statistics.values()) == {1.234567}
    assert list(statistics) == ["mean", "p50", "p90", "p95", "p99", "p999", "p9999", "max"]


@given(values_ns)
def test_count_mean_and_maximum_are_exact(values: list[int]) -> None:
    histogram = filled(values)
    assert histogram.count == len(values)
    assert histogram.sum_ns == sum(values)
    assert histogram.mean_ns == sum(values) / len(values)
    assert histogram.max_ns == max(values)


@given(values_ns)
def test_percentiles_are_within_a_thousandth_of_the_value_at_that_rank(values: list[int]) -> None:
    found = filled(values).percentiles_ns()
    assert found is not None
    ordered = sorted(values)
    for name, rank in PERCENTILES.items():
        position = math.ceil(round(rank * len(values) / 100, 6))
        true_ns = ordered[position - 1]
        assert true_ns <= found[name] <= true_ns * 1.001 + 1


def test_more_values_than_the_buffer_holds_lose_nothing() -> None:
    values = np.random.default_rng(1).integers(1, 10**9, 150_000).tolist()
    histogram = filled(values)
    assert histogram.count == 150_000
    assert histogram.sum_ns == sum(values)
    statistics = histogram.statistics_ms()
    assert statistics is not None
    assert abs(statistics["p99"] / (np.percentile(values, 99) / 1e6) - 1) < 0.002


@given(values_ns, values_ns)
def test_merging_equals_recording_everything_in_one(left: list[int], right: list[int]) -> None:
    both = merged((filled(left), filled(right)))
    assert both.to_dict() == filled(left + right).to_dict()


@given(values_ns)
def test_the_encoded_form_restores_every_statistic(values: list[int]) -> None:
    histogram = filled(values)
    data = histogram.to_dict()
    assert data is not None
    assert Histogram.from_dict(data).statistics_ms() == histogram.statistics_ms()


@given(values_ns, st.integers(0, HIGHEST_NS))
def test_count_above_errs_by_no_more_than_a_step(values: list[int], limit_ns: int) -> None:
    above = filled(values).count_above(limit_ns)
    assert sum(v > limit_ns * 1.001 + 1 for v in values) <= above <= sum(v > limit_ns for v in values)


def test_a_value_beyond_two_days_keeps_its_exact_maximum() -> None:
    histogram = filled([HIGHEST_NS * 3])
    assert histogram.max_ns == HIGHEST_NS * 3
    assert histogram.count == 1
