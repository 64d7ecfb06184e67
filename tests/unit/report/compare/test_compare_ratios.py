"""Ratios of small samples: intervals that hold, verdicts that claim no more than they can."""

import math
import random

import pytest

from kvspill.report.compare.ratios import (
    ALIKE,
    BETTER,
    CANNOT_TELL,
    DIFFERS,
    WORSE,
    Ratio,
    geometric_mean,
    ratio_of_pairs,
    ratio_of_samples,
    ratio_with_zeros,
    verdict,
    win_rate,
)


def interval(first: list[float], second: list[float]) -> tuple[float, float, float]:
    ratio = ratio_of_samples(first, second)
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.value, ratio.low, ratio.high


def test_one_run_a_side_cannot_tell() -> None:
    ratio = ratio_of_samples([100.0], [50.0])
    assert ratio is not None
    assert ratio.low is None
    assert ratio.value == pytest.approx(0.5)
    assert verdict(ratio, "higher") == CANNOT_TELL


def test_one_run_on_one_side_cannot_tell_either() -> None:
    assert verdict(ratio_of_samples([100.0, 101.0, 99.0], [50.0]), "higher") == CANNOT_TELL


def test_the_interval_is_welchs_on_the_logarithms() -> None:
    # By hand for logs (0, 0.2, 0.4) and (1, 1.2, 1.4): difference 1, error sqrt(2 * 0.04 / 3), 4 degrees.
    first, second = [math.exp(x) for x in (0, 0.2, 0.4)], [math.exp(x) for x in (1, 1.2, 1.4)]
    value, low, high = interval(first, second)
    assert value == pytest.approx(math.e)
    half = 2.776 * math.sqrt(2 * 0.04 / 3)
    assert math.log(high) == pytest.approx(1 + half, rel=0.01)
    assert math.log(low) == pytest.approx(1 - half, rel=0.01)


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    chance = random.Random(7)
    covered = 0
    for _ in range(600):
        first = [chance.lognormvariate(0.0, 0.1) for _ in range(3)]
        second = [chance.lognormvariate(math.log(1.3), 0.3) for _ in range(4)]
        _, low, high = interval(first, second)
        covered += low <= 1.3 <= high
    assert 0.93 <= covered / 600 <= 1.0


@pytest.mark.parametrize(
    ("ratio", "better", "expected"),
    [
        (Ratio(1.2, 1.1, 1.3), "higher", BETTER),
        (Ratio(1.2, 1.1, 1.3), "lower", WORSE),
        (Ratio(0.8, 0.7, 0.9), "higher", WORSE),
        (Ratio(0.8, 0.7, 0.9), "lower", BETTER),
        (Ratio(1.2, 0.9, 1.5), "higher", ALIKE),
        (Ratio(1.2, 1.1, 1.3), "neither", DIFFERS),
        (Ratio(1.0 - 1e-13, 1.0 - 1e-13, 1.0 - 1e-13), "higher", ALIKE),
        (None, "higher", CANNOT_TELL),
    ],
)
def test_verdicts_follow_the_interval_and_the_direction(ratio: Ratio, better: str, expected: str) -> None:
    assert verdict(ratio, better) == expected  # type: ignore[arg-type]


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert geometric_mean([4.0, 0.25]) == pytest.approx(1.0)


def test_values_that_are_not_positive_give_no_ratio() -> None:
    assert geometric_mean([1.0, 0.0]) is None
    assert ratio_of_samples([0.0, 1.0], [1.0, 2.0]) is None
    assert ratio_of_pairs([]) is None


def test_win_rate_counts_strict_wins_in_the_metrics_own_direction() -> None:
    assert win_rate([1.1, 1.0, 0.9, 2.0], "higher") == 0.5
    assert win_rate([1.1, 1.0, 0.9, 2.0], "lower") == 0.25
    assert win_rate([1.1], "neither") is None


def test_an_absurd_scatter_gives_a_wide_interval_and_no_overflow() -> None:
    ratio = ratio_of_samples([1e-100, 1e100], [1e-90, 1e110])
    assert ratio is not None
    assert verdict(ratio, "higher") == ALIKE
    assert math.isfinite(ratio.high or math.inf)


def test_values_too_small_to_be_squared_still_have_a_ratio() -> None:
    found = ratio_with_zeros([0.0, 1e-100], [1e-100, 2e-100])
    assert found is not None
    assert found.value == pytest.approx(3.0)
