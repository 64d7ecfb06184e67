"""The statistical claims of docs/statistics.md at reduced size; benchmarks/claims.py has all of it."""

import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from kvspill.measure.statistics import holm, runs_needed, series_interval, student_quantile
from kvspill.measure.steady import CLOSED_SECONDS, NOT_STEADY, judge, steady_state
from kvspill.records import NS_PER_SEC
from kvspill.report.columns import COLUMNS
from kvspill.report.compare.comparison import compare
from kvspill.report.compare.ratios import ALIKE, INDICATIVE
from sim.loads import LOADS, changed_windows, columns, cut, factors, rates, simulate
from unit.report.compare.made import run

Process = Callable[[np.random.Generator, int], list[float]]


def independent(noise: np.random.Generator, seconds: int) -> list[float]:
    found: list[float] = (1000 + 100 * noise.standard_normal(seconds)).tolist()
    return found


def resembling(noise: np.random.Generator, seconds: int) -> list[float]:
    """Neighbours correlate by 0.4, as bytes behind DRAM do."""
    value, found = 0.0, []
    for step in noise.standard_normal(seconds + 30):
        value = 0.4 * value + step
        found.append(1000 + 100 * float(value))
    return found[30:]


def alternating(noise: np.random.Generator, seconds: int) -> list[float]:
    """A busy second is made up for by the next: neighbours correlate by -0.3, as tokens do."""
    steps = noise.standard_normal(seconds + 1)
    found: list[float] = (1000 + 100 * (steps[1:] - 0.35 * steps[:-1])).tolist()
    return found


@pytest.mark.parametrize("process", [independent, resembling, alternating])
@pytest.mark.parametrize("seconds", [60, 300])
def test_a_95_percent_interval_holds_the_true_mean_in_93_to_97_percent_of_windows(
    process: Process, seconds: int
) -> None:
    noise, held = np.random.default_rng(1), 0
    for _ in range(1000):
        interval = series_interval(process(noise, seconds))
        assert interval is not None
        held += interval.low <= 1000 <= interval.high
    assert 925 <= held <= 975


def test_negative_correlation_makes_the_interval_narrower() -> None:
    """The variance of the mean is 0.42 of that of independent seconds with the same step."""
    noise, widths = np.random.default_rng(2), {}
    for process in (independent, alternating):
        found = [series_interval(process(noise, 120)) for _ in range(200)]
        widths[process] = np.mean([item.high - item.low for item in found if item is not None])
    assert widths[alternating] < 0.75 * widths[independent]


@pytest.mark.parametrize("process", [independent, resembling, alternating])
def test_at_most_one_percent_of_stationary_windows_are_called_not_steady(process: Process) -> None:
    noise = np.random.default_rng(3)
    alarms = sum(judge(process(noise, 120))["verdict"] == NOT_STEADY for _ in range(500))
    assert alarms <= 5


@pytest.mark.parametrize("kind", ["step", "drift", "hump"])
def test_a_shift_is_found_in_at_least_four_windows_of_five_where_the_rate_varies_little(
    kind: str,
) -> None:
    """2.5 % noise of a second; the bytes of a saturated drive vary by 2 %."""
    noise, chance, found = np.random.default_rng(4), random.Random(4), 0
    for _ in range(200):
        quiet = [1000 + (value - 1000) / 4 for value in independent(noise, 120)]
        moved = [value * factor for value, factor in zip(quiet, factors(kind, 120, chance), strict=True)]
        found += judge(moved)["verdict"] == NOT_STEADY
    assert found >= 160


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
def test_on_simulated_loads_intervals_hold_and_alarms_are_rare(name: str) -> None:
    seconds, closed = 120, LOADS[name].get("arrival") == "closed"
    held, alarms, windows = 0, 0, 0
    for seed in (1, 2):
        seen = columns(LOADS[name], seed, 3000.0)
        means = {rate: fmean(values) for rate, values in rates(seen).items()}
        for place in range(0, 3000, seconds):
            window = cut(seen, place, seconds)
            windows += 1
            alarms += steady_state(window, seconds)["verdict"] == NOT_STEADY
            for rate, values in rates(window).items():
                interval = series_interval(values)
                assert interval is not None
                held += interval.low <= means[rate] <= interval.high
    assert held / (2 * windows) >= 0.91
    assert alarms <= 2
    assert closed or held / (2 * windows) <= 0.99
    assert judge([100.0] * 120, closed=closed)["ci95_wider_than_needed_by_at_most"] == (
        1 + CLOSED_SECONDS / 120 if closed else None
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["step", "drift", "hump"])
@pytest.mark.parametrize("name", LOADS)
def test_a_drive_that_changes_is_found_in_four_windows_of_five_on_every_load(name: str, kind: str) -> None:
    windows = list(changed_windows(LOADS[name], kind, seed=1, count=10))
    found = sum(steady_state(window, 120)["verdict"] == NOT_STEADY for window in windows)
    assert found >= 8


def test_a_drive_that_slows_by_a_tenth_is_found_where_the_rates_cannot_show_it() -> None:
    """Poisson arrivals leave the drive idle nine tenths of the time: the rates are the users' own."""
    (window,) = changed_windows(LOADS["open-poisson"], "step", seed=1, count=1)
    found = steady_state(window, 120)
    assert found["verdict"] == NOT_STEADY
    assert NOT_STEADY not in (found["tokens"]["verdict"], found["bytes"]["verdict"])
    assert abs(found["storage_speed"]["shift"]) == pytest.approx(0.1, abs=0.02)


def test_the_speed_while_busy_is_the_drives_whatever_it_is_asked_for(tmp_path: Path) -> None:
    """A drive of 3 GiB/s that the arrivals leave idle most of the time."""
    profile = tmp_path / "drive.yaml"
    profile.write_text("storage: {read_gib_per_sec: 3.0, write_gib_per_sec: 3.0}\n")
    result = simulate(LOADS["open-poisson"], duration=40.0, device_profile=str(profile))
    busy = sum(value or 0 for value in result.timeline.columns["storage_busy_ns"]) / NS_PER_SEC
    assert 0 < busy < 0.5 * float(result.window.measured_seconds)
    assert result.number("storage_busy_gib_per_sec") == pytest.approx(3.0, rel=0.01)


def test_holms_correction_keeps_the_family_at_its_level() -> None:
    assert holm([0.04, 0.01, 0.03]) == [False, True, False]
    assert holm([0.01, 0.02, 0.03]) == [True, True, True]
    assert holm([]) == []


def test_at_most_one_comparison_in_twenty_of_equal_sides_shows_a_difference_in_any_line() -> None:
    """Five pairs, all lines, no true difference: the family's error, not each line's."""
    chance, false, by_themselves = random.Random(6), 0, 0
    for number in range(60):
        sides = [
            [
                run(
                    f"{side}{seed}",
                    values={column.key: 100 * (1 + chance.gauss(0, 0.02)) for column in COLUMNS},
                    config={"seed": seed, "cpu_mem_gb": 0},
                    digest=f"{number}/{seed}",
                )
                for seed in range(5)
            ]
            for side in "AB"
        ]
        found = compare(sides[0], sides[1])
        assert found.by_seed
        others = [line.verdict for line in found.lines if line.metric not in found.primary]
        false += any(verdict != ALIKE and verdict not in INDICATIVE.values() for verdict in others)
        by_themselves += any(verdict != ALIKE for verdict in others)
    assert false <= 6
    assert by_themselves >= 30


def test_the_number_of_runs_that_would_do_does() -> None:
    """As many pairs as the figure says find the loss four times out of five."""
    needed = runs_needed(0.05, 0.05, paired=True)
    assert needed is not None
    noise, found = np.random.default_rng(7), 0
    for _ in range(400):
        pairs = 0.05 + 0.05 * noise.standard_normal(needed)
        error = pairs.std(ddof=1) / np.sqrt(needed)
        found += abs(pairs.mean()) > student_quantile(0.975, needed - 1) * error
    assert 0.75 <= found / 400 <= 0.88
    assert runs_needed(0.05, 0.05, paired=False) > needed  # type: ignore[operator]
    assert runs_needed(5.0, 0.01, paired=True) is None
