"""Small-sample statistics against values from printed tables and worked examples."""

import math
import random
import subprocess
import sys

import pytest
from scipy import stats

from kvspill.measure.statistics import (
    coefficient_of_variation,
    difference_interval,
    mean_interval,
    median_interval,
    percentile,
    student_quantile,
    trend,
)

TABLE_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 19: 2.093, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "tabulated"), TABLE_975.items())
def test_students_quantile_agrees_with_the_table(freedom: int, tabulated: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(tabulated, abs=0.0005)


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


def test_the_slope_is_theil_sens_and_the_test_kendalls() -> None:
    chance = random.Random(3)
    series = [0.1 * n + chance.gauss(0, 1) for n in range(40)]
    found = trend(series)
    assert found.slope == pytest.approx(stats.theilslopes(series).slope, rel=1e-12)
    # Kendall's test without the continuity correction says a little more than ours.
    plain = stats.kendalltau(range(40), series, method="asymptotic").pvalue
    assert plain < found.p_value < 1.1 * plain


def test_the_interval_of_a_difference_is_welchs() -> None:
    # Box, Hunter and Hunter's rule by hand: means 2 and 8, variances 1 and 4, 3 values each.
    found = difference_interval([1.0, 2.0, 3.0], [6.0, 8.0, 10.0])
    error, freedom = math.sqrt(5 / 3), (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * error
    assert (found.mean, found.low, found.high) == pytest.approx((6.0, 6.0 - half, 6.0 + half), rel=1e-12)


def test_equal_values_differ_by_an_interval_without_width() -> None:
    found = difference_interval([2.0, 2.0], [3.0, 3.0, 3.0])
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)


@pytest.mark.filterwarnings("error")
def test_nearly_equal_values_warn_of_nothing() -> None:
    found = difference_interval([1.0, 1.0 + 1e-15], [1.0, 1.0 - 1e-16])
    assert found.low <= found.mean <= found.high


def test_the_interval_of_a_median_is_the_same_for_the_same_values() -> None:
    values = [0.9, 0.95, 1.0, 1.02, 0.97, 0.99, 1.01, 0.94, 0.96]
    assert median_interval(values) == median_interval(values) == (0.94, 1.01)
    assert median_interval([3.0]) == (3.0, 3.0)


@pytest.mark.parametrize(("rank", "expected"), [(95, 95), (95.1, 96), (50, 50), (100, 100), (0, 1)])
def test_a_percentile_is_the_smallest_value_that_covers_its_share(rank: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), rank) == expected


def test_what_a_run_computes_imports_no_scipy_stats() -> None:
    code = (
        "import sys; from kvspill.measure.steady import judge; assert 'scipy' not in sys.modules; "
        "judge(list(range(100))); assert 'scipy.special' in sys.modules; "
        "sys.exit('scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
