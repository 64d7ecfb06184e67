"""Steady state: a level is steady, a drift is not, and a short window says that it can't tell."""

import random

import pytest

from kvspill.measure.steady import NOT_STEADY, STEADY, TOO_SHORT, batch_means, judge, steady_state


def noisy(seconds: int, level: float, drift: float, seed: int = 1) -> list[int]:
    chance = random.Random(seed)
    return [
        round(level * (1 + drift * second / seconds) * chance.uniform(0.9, 1.1)) for second in range(seconds)
    ]


def test_a_noisy_level_is_steady_and_its_mean_lies_in_the_interval() -> None:
    judged = judge(noisy(120, 1000, 0.0))
    assert judged["verdict"] == STEADY
    assert judged["ci95_low"] < 1000 < judged["ci95_high"]
    assert judged["ci95_relative_half_width"] < 0.02
    assert (judged["batches"], judged["batch_seconds"]) == (20, 6)


@pytest.mark.parametrize("drift", [-0.5, 0.3])
def test_a_drift_is_not_steady_and_is_stated(drift: float) -> None:
    columns = {"tokens": noisy(120, 1000, 0.0), "storage_read_bytes": noisy(120, 10**9, drift)}
    found = steady_state(columns, 120.0)
    assert found["verdict"] == NOT_STEADY
    assert "bytes" in found["reason"]
    assert f"{found['bytes']['drift']:+.0%}" in found["reason"]
    assert found["tokens"]["verdict"] == STEADY


def test_a_significant_but_tiny_drift_is_of_no_consequence() -> None:
    judged = judge([1000 + second // 10 for second in range(200)])
    assert judged["p_value"] < 0.01
    assert judged["verdict"] == STEADY


def test_few_seconds_or_nothing_done_can_not_be_told() -> None:
    assert judge([5] * 19)["verdict"] == TOO_SHORT
    assert judge([0] * 60)["verdict"] == TOO_SHORT
    assert steady_state({}, 60.0)["verdict"] == TOO_SHORT


def test_activity_in_the_seconds_that_batches_leave_out_alone_can_not_be_told() -> None:
    values = [0] * 59
    values[0] = 490
    assert judge(values) == {"verdict": TOO_SHORT, "seconds": 59}
    assert steady_state({"tokens": values, "storage_read_bytes": values}, 59.0)["verdict"] == TOO_SHORT


@pytest.mark.parametrize("seconds", range(20, 64))
def test_a_single_busy_second_never_breaks_the_judgement(seconds: int) -> None:
    for busy in range(seconds):
        judge([int(second == busy) for second in range(seconds)])


def test_the_unfinished_last_second_is_left_out() -> None:
    found = steady_state({"tokens": [100] * 30 + [1], "cpu_read_bytes": [5] * 30 + [0]}, 30.4)
    assert found["tokens"]["seconds"] == 30
    assert found["tokens"]["mean_per_sec"] == 100


def test_batches_are_equal_and_leave_out_the_oldest_odd_seconds() -> None:
    assert batch_means([9] + [1, 3] * 20) == [2.0] * 20
    assert len(batch_means(list(range(59)))) == 29
