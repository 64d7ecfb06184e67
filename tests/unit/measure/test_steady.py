"""Steady state: a level is steady, a drift is not, and a short window says that it can't tell."""

import math
import random
from collections.abc import Callable
from typing import Any

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
    assert (judged["batches"], judged["batch_seconds"]) == (30, 4)


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
    values = [0] * 61
    values[0] = 490
    assert judge(values) == {"verdict": TOO_SHORT, "seconds": 61}
    assert steady_state({"tokens": values, "storage_read_bytes": values}, 61.0)["verdict"] == TOO_SHORT


@pytest.mark.parametrize("seconds", range(20, 64))
def test_a_single_busy_second_never_breaks_the_judgement(seconds: int) -> None:
    for busy in range(seconds):
        judge([int(second == busy) for second in range(seconds)])


def test_the_unfinished_last_second_is_left_out() -> None:
    found = steady_state({"tokens": [100] * 30 + [1], "cpu_read_bytes": [5] * 30 + [0]}, 30.4)
    assert found["tokens"]["seconds"] == 30
    assert found["tokens"]["mean_per_sec"] == 100


def test_batches_are_equal_and_leave_out_the_oldest_odd_seconds() -> None:
    assert batch_means([9] + [1, 3] * 30) == [2.0] * 30
    assert len(batch_means(list(range(89)))) == 44


def correlated(seconds: int, rho: float, seed: int, spread: float = 0.1) -> list[float]:
    """A level of 1,000 whose seconds resemble their neighbours."""
    chance, value, values = random.Random(seed), 0.0, []
    for _second in range(seconds + 50):
        value = rho * value + chance.gauss(0, spread * (1 - rho * rho) ** 0.5)
        values.append(max(0.0, 1000 * (1 + value)))
    return values[50:]


@pytest.mark.parametrize(
    ("name", "factor_of"),
    [
        ("a step down in the last fifth", lambda place: 0.7 if place >= 0.8 else 1.0),
        ("a collapse in the last tenth", lambda place: 0.2 if place >= 0.9 else 1.0),
        ("a hump in the middle", lambda place: 1.4 if 0.4 <= place < 0.7 else 1.0),
        ("a slow start", lambda place: 0.5 if place < 0.15 else 1.0),
    ],
)
@pytest.mark.parametrize("seconds", [30, 60, 270])
def test_a_shift_of_level_is_never_called_steady_wherever_it_lies(
    name: str, factor_of: Any, seconds: int
) -> None:
    values = [
        value * factor_of(second / seconds) for second, value in enumerate(noisy(seconds, 1000, 0.0, seed=7))
    ]
    judged = judge(values)
    assert judged["verdict"] != STEADY, name
    if seconds >= 60:
        assert judged["verdict"] == NOT_STEADY, name


def test_the_stretch_that_differs_is_named_with_its_seconds() -> None:
    values = [
        round(value * (0.6 if second >= 96 else 1)) for second, value in enumerate(noisy(120, 1000, 0.0))
    ]
    found = steady_state({"tokens": values, "storage_read_bytes": [5] * 120}, 120.0)
    assert found["verdict"] == NOT_STEADY
    assert "The rate of tokens from second 96 to 120 differs by -4" in found["reason"]


def test_a_large_drift_that_may_be_chance_is_not_called_steady() -> None:
    chance = random.Random(3)
    values = [round(1000 * (1.25 - 0.5 * second / 30) * chance.uniform(0.2, 1.8)) for second in range(30)]
    judged = judge(values)
    assert judged["verdict"] == TOO_SHORT
    found = steady_state({"tokens": values, "cpu_read_bytes": values}, 30.0)
    tokens = found["tokens"]
    assert found["reason"] == (
        "The rate of tokens varies so much that only a change of "
        f"{tokens['resolution']:.0%} or more would be noticed; "
        f"{tokens['seconds_needed']} s would be enough."
    )


def test_too_short_comes_with_the_duration_that_would_do() -> None:
    """The same noise for as long as the judgement of a short window asks for is enough, or nearly."""
    chance = random.Random(5)
    values = [1000 * chance.uniform(0.0, 2.0) for _ in range(5000)]
    short = judge(values[:40])
    assert short["verdict"] == TOO_SHORT
    assert short["seconds_needed"] > 40
    assert judge(values[: round(1.5 * short["seconds_needed"])])["verdict"] == STEADY


def test_a_steady_window_says_which_step_would_have_been_found() -> None:
    columns = {"tokens": noisy(120, 1000, 0.0), "storage_read_bytes": noisy(120, 10**9, 0.0, seed=2)}
    found = steady_state(columns, 120.0)
    best = min((found[name]["resolution"], name) for name in ("tokens", "bytes"))
    assert found["reason"].endswith(
        f"a step of {math.ceil(100 * best[0])}% in {best[1]} would have been found."
    )
    missed = 0
    for seed in range(20):
        values: list[float] = list(noisy(120, 1000, 0.0, seed=seed))
        step = judge(values)["resolution"]
        shifted = [value * (1 - step if second >= 60 else 1) for second, value in enumerate(values)]
        missed += judge(shifted)["verdict"] != NOT_STEADY
    assert missed <= 4


def test_where_users_wait_for_answers_the_interval_says_that_it_is_conservative_and_by_how_much() -> None:
    columns = {"tokens": noisy(120, 1000, 0.0)}
    assert steady_state(columns, 120.0, closed=True)["tokens"]["ci95_wider_than_needed_by_at_most"] == 2.0
    assert steady_state(columns, 120.0)["tokens"]["ci95_wider_than_needed_by_at_most"] is None


def test_steady_noise_is_hardly_ever_called_unsteady() -> None:
    verdicts = [judge(correlated(120, 0.3, seed, spread=0.1))["verdict"] for seed in range(200)]
    assert verdicts.count(NOT_STEADY) <= 6
    assert verdicts.count(STEADY) >= 180


@pytest.mark.parametrize(("seconds", "rho"), [(30, 0.5), (60, 0.6), (270, 0.8)])
def test_the_interval_holds_the_true_mean_also_where_seconds_resemble_their_neighbours(
    seconds: int, rho: float
) -> None:
    intervals = [judge(correlated(seconds, rho, seed)) for seed in range(300)]
    held = sum(item["ci95_low"] <= 1000 <= item["ci95_high"] for item in intervals)
    assert held >= 0.88 * len(intervals)


def test_what_never_happens_is_not_judged() -> None:
    """A node that only prefills generates nothing: its bytes alone tell whether it was steady."""
    columns = {"tokens": [0] * 90, "storage_write_bytes": noisy(90, 10**9, 0.0)}
    found = steady_state(columns, 90.0)
    assert found["verdict"] == STEADY
    assert "tokens" not in found


def test_a_mean_that_is_hardly_known_is_not_called_steady() -> None:
    values = [1000 * (1.5 if second // 34 % 2 else 0.5) for second in range(270)]
    judged = judge(values)
    assert judged["ci95_relative_half_width"] > 0.2
    assert judged["verdict"] != STEADY


def test_wider_steps_are_judged_in_seconds() -> None:
    values = [100 + place % 3 for place in range(400)]
    seconds, steps = steady_state({"tokens": values}, 400.0), steady_state({"tokens": values}, 1600.0, 4)
    assert steps["verdict"] == seconds["verdict"] == STEADY
    assert steps["tokens"]["seconds"] == 4 * seconds["tokens"]["seconds"] == 1600
    assert steps["tokens"]["mean_per_sec"] == pytest.approx(seconds["tokens"]["mean_per_sec"] / 4)


def at_work(
    seconds: int, busy: Callable[[int], float], speed: Callable[[int], float], seed: int = 1
) -> dict[str, list[float]]:
    """A timeline of a drive that reads at 4e9 and writes at 2e9 bytes per second while it is at work."""
    chance, found = random.Random(seed), {name: [0.0] * seconds for name in TIMELINE}
    for second in range(seconds):
        written = chance.uniform(0.1, 0.9)
        found["storage_busy_ns"][second] = 1e9 * busy(second)
        found["storage_read_bytes"][second] = 4e9 * busy(second) * speed(second) * (1 - written)
        found["storage_write_bytes"][second] = 2e9 * busy(second) * speed(second) * written
        found["storage_read_ops"][second] = found["storage_write_ops"][second] = 3.0
        found["tokens"][second] = chance.uniform(0.0, 1000.0)
    return found


TIMELINE = (
    *("tokens", "storage_busy_ns", "storage_read_bytes", "storage_read_ops", "storage_write_bytes"),
    "storage_write_ops",
)


def test_a_slower_drive_is_found_whatever_was_asked_of_it() -> None:
    """Load and mixture change at random from second to second, as they do behind DRAM."""
    chance = random.Random(2)
    share = [chance.uniform(0.0, 0.3) for _ in range(120)]
    found = steady_state(
        at_work(120, lambda second: share[second], lambda second: 0.9 if second >= 70 else 1.0), 120.0
    )
    assert found["verdict"] == NOT_STEADY
    assert found["reason"] == (
        "The speed of the storage from second 70 to 120 differs by -10% from the rest: not steady."
    )
    assert found["storage_speed"]["shift"] == pytest.approx(-0.1, abs=0.01)
    assert found["bytes"]["verdict"] == TOO_SHORT


def test_a_drive_that_drifts_is_said_to() -> None:
    found = steady_state(at_work(120, lambda _: 0.2, lambda second: 1 - 0.1 * second / 120), 120.0)
    assert "The speed of the storage drifted by -10% over the measured window" in found["reason"]


def test_more_load_or_another_mixture_is_no_change_of_the_drive() -> None:
    found = steady_state(at_work(120, lambda second: 0.1 if second < 60 else 0.3, lambda _: 1.0), 120.0)
    assert found["storage_speed"]["verdict"] == STEADY
    assert found["storage_speed"]["busy_seconds"] == pytest.approx(24.0)
    assert found["verdict"] == NOT_STEADY
    assert "rate of bytes" in found["reason"]


def test_what_is_too_short_for_the_rates_may_be_enough_for_the_drive() -> None:
    chance = random.Random(4)
    share = [chance.uniform(0.0, 0.3) for _ in range(40)]
    found = steady_state(at_work(40, lambda second: share[second], lambda _: 1.0), 40.0)
    assert found["verdict"] == TOO_SHORT
    assert found["reason"].endswith(
        " s would be enough. The speed of the storage was steady: a step of 6% in it would have been found."
    )


def test_a_few_reads_that_begin_as_the_drive_slows_do_not_explain_it() -> None:
    columns = at_work(120, lambda _: 0.2, lambda second: 0.9 if second >= 70 else 1.0)
    chance = random.Random(5)
    columns["storage_write_bytes"] = [0.4e9 * (0.9 if second >= 70 else 1.0) for second in range(120)]
    columns["storage_read_bytes"] = [
        chance.uniform(0.5e6, 1.5e6) if second >= 70 else 0.0 for second in range(120)
    ]
    found = steady_state(columns, 120.0)["storage_speed"]
    assert found["verdict"] == NOT_STEADY
    assert found["shift"] == pytest.approx(-0.1, abs=0.04)


def test_a_drive_that_hardly_worked_is_not_judged() -> None:
    columns = at_work(120, lambda _: 0.2, lambda _: 1.0)
    columns["storage_read_ops"] = columns["storage_write_ops"] = [0.0] * 101 + [1.0] * 19
    assert "storage_speed" not in steady_state(columns, 120.0)
    assert "storage_speed" not in steady_state({"tokens": [5.0] * 120, "cpu_read_bytes": [5.0] * 120}, 120.0)


def test_every_judgement_says_how_long_a_window_finds_a_tenth() -> None:
    judged = judge(noisy(120, 1000, 0.0))
    assert judged["seconds_for_a_tenth"] == pytest.approx(120 * (judged["resolution"] / 0.1) ** 2, rel=0.1)


def test_a_load_is_judged_by_the_length_of_its_window() -> None:
    columns = {"tokens": noisy(120, 1000, 0.0)}
    judged = steady_state(columns, 120.0)["tokens"]
    assert judged["resolution"] == pytest.approx(judge(columns["tokens"])["resolution"] * 9 / 8.5)


def test_rates_of_a_handful_of_requests_are_no_level() -> None:
    """Three requests of very different size in two minutes were called a fall of 236 %."""
    values = [1000.0] * 60 + [10.0] * 60
    requests = [0.0] * 120
    requests[40] = requests[70] = requests[100] = 1.0
    columns = {"tokens": values, "storage_read_bytes": values}
    assert steady_state(columns, 120.0)["verdict"] == NOT_STEADY
    found = steady_state({**columns, "requests": requests}, 120.0)
    assert found["verdict"] == TOO_SHORT
    assert found["reason"].startswith("3 requests completed: too few to tell")
    assert "1,200 s would be enough" in found["reason"]
