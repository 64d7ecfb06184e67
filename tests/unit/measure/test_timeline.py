"""The timeline: sums by second, states that hold until the next, equal lengths."""

import pytest

from kvspill.measure.timeline import Timeline
from kvspill.records import NS_PER_SEC


def test_sums_and_states_have_the_length_of_the_window() -> None:
    timeline = Timeline(10 * NS_PER_SEC)
    timeline.add("tokens", 11 * NS_PER_SEC, 7)
    timeline.note("queued", int(10.5 * NS_PER_SEC), 3)
    columns = timeline.columns(14 * NS_PER_SEC)
    assert columns == {"queued": [3, 3, 3, 3], "tokens": [0, 7, 0, 0]}


def test_a_state_holds_until_the_next_and_the_last_of_a_second_counts() -> None:
    timeline = Timeline(0)
    for at, value in ((1.5, 4), (3.2, 9), (3.6, 8)):
        timeline.note("users", int(at * NS_PER_SEC), value)
    assert timeline.columns(5 * NS_PER_SEC)["users"] == [4, 4, 4, 8, 8]


def test_a_state_seen_before_the_window_is_not_in_it() -> None:
    timeline = Timeline(10 * NS_PER_SEC)
    timeline.note("users", 9 * NS_PER_SEC, 4)
    assert timeline.columns(12 * NS_PER_SEC) == {}


def test_a_window_of_months_has_wider_steps_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvspill.measure.timeline.STEPS_MAX", 10)
    timeline = Timeline(0)
    for second in range(35):
        timeline.add("tokens", second * NS_PER_SEC, 1)
        timeline.note("users", second * NS_PER_SEC, second)
    columns = timeline.columns(35 * NS_PER_SEC)
    assert timeline.step_seconds == 4
    assert columns == {"tokens": [4] * 8 + [3], "users": [3, 7, 11, 15, 19, 23, 27, 31, 34]}


def test_a_quiet_end_widens_the_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvspill.measure.timeline.STEPS_MAX", 10)
    timeline = Timeline(0)
    timeline.add("tokens", 0, 7)
    assert timeline.columns(21 * NS_PER_SEC)["tokens"] == [7, 0, 0, 0, 0, 0]
    assert timeline.step_seconds == 4
