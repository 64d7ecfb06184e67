"""What the GPU comparisons take for the same bytes, and for the speed that an operation reached."""

import math

import pytest

from gpu import Compared
from gpu_tiers import furthest


def runs(*values: float) -> list[dict[str, float]]:
    return [{"cpu": 5.0, "storage": value} for value in values]


def test_equal_bytes_are_the_same() -> None:
    assert furthest(runs(3.0), runs(3.0), 0.0) == (0.0, True)


def test_bytes_of_one_run_that_differ_are_not_the_same() -> None:
    off, same = furthest(runs(3.0), runs(2.0), 0.01)
    assert off == pytest.approx(0.5)
    assert not same


@pytest.mark.parametrize(("real", "modelled"), [(3.0, 0.0), (0.0, 3.0), (0.0, 0.0)])
def test_a_way_that_moved_nothing_was_not_compared(real: float, modelled: float) -> None:
    assert furthest(runs(real), runs(modelled), 0.01) == (math.inf, False)


def test_runs_that_scatter_excuse_no_medians_that_are_apart() -> None:
    off, same = furthest(runs(100.0, 103.0, 99.0), runs(98.0, 97.0, 99.0), 0.01)
    assert off == pytest.approx(100 / 98 - 1)
    assert not same
    assert furthest(runs(98.5, 103.0, 97.0), runs(98.0, 97.0, 99.0), 0.01)[1]


def test_only_copies_that_overlap_are_judged_by_wall_time() -> None:
    assert Compared("puts", 40.0, 50.0, 50.0, 0.9).ratio == pytest.approx(0.8)
    assert Compared("demotions", 40.0, 50.0, 50.0, 0.9, overlap=True).ratio == pytest.approx(1.0)
