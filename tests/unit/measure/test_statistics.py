"""Small-sample statistics against values from printed tables and worked examples."""

import pytest

from kvspill.measure.statistics import coefficient_of_variation, mean_interval, student_quantile, trend

TABLE_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 19: 2.093, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "tabulated"), TABLE_975.items())
def test_students_quantile_agrees_with_the_table(freedom: int, tabulated: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(tabulated, rel=0.005)


def test_students_quantile_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        student_quantile(0.975, 0)


def test_the_interval_of_three_values_uses_two_degrees_of_freedom() -> None:
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval is not None
    assert interval.mean == 2.0
    assert interval.high - interval.mean == pytest.approx(4.3027 * 1.0 / 3**0.5, rel=1e-4)
    assert interval.low == pytest.approx(2 * interval.mean - interval.high)


def test_one_value_has_no_interval_and_no_spread() -> None:
    assert mean_interval([5.0]) is None
    assert coefficient_of_variation([5.0]) is None


def test_variation_is_standard_deviation_over_mean() -> None:
    assert coefficient_of_variation([9.0, 10.0, 11.0]) == pytest.approx(0.1)
    assert coefficient_of_variation([0.0, 0.0]) is None


def test_a_rising_series_has_a_significant_trend_with_its_slope() -> None:
    found = trend([2.0 * n for n in range(20)])
    assert found.slope == pytest.approx(2.0)
    assert found.p_value < 1e-6


def test_mann_kendall_of_a_worked_example() -> None:
    # S = 4 of n = 4 distinct values without ties: variance 4*3*13/18 = 8.667, z = 3/2.944.
    found = trend([1.0, 2.0, 4.0, 3.0])
    assert found.p_value == pytest.approx(0.3082, abs=5e-4)


def test_a_constant_series_has_no_trend() -> None:
    found = trend([7.0] * 30)
    assert (found.slope, found.p_value) == (0.0, 1.0)


def test_two_values_are_too_few_for_a_trend() -> None:
    with pytest.raises(ValueError, match="at least 3 values, not 2"):
        trend([1.0, 2.0])
