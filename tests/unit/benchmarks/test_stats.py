"""Statistics of interleaved measurements, against figures worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.stats import paired_ratio


def test_a_slowdown_that_both_sides_share_cancels_out_of_the_ratio() -> None:
    theirs = [100.0, 50.0, 200.0, 100.0, 25.0]
    ratio = paired_ratio([value * 0.96 for value in theirs], theirs)
    assert ratio.median == pytest.approx(0.96)
    assert ratio.low == pytest.approx(ratio.high) == pytest.approx(0.96)


def test_pairs_are_compared_round_by_round() -> None:
    assert paired_ratio([1.0, 2.0, 30.0], [1.0, 4.0, 10.0]).median == 1.0


def test_unpaired_measurements_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs needed: 2 values against 1"):
        paired_ratio([1.0, 2.0], [1.0])


@settings(max_examples=10)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12))
def test_the_interval_holds_the_median_and_stays_among_the_values(values: list[float]) -> None:
    ratio = paired_ratio(values, [1.0] * len(values))
    assert min(values) <= ratio.low <= ratio.median <= ratio.high <= max(values)
