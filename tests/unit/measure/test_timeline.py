"""The timeline: sums by second, states that hold until the next, equal lengths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvspill.measure.timeline import Timeline
from kvspill.records import NS_PER_MS, NS_PER_SEC
from unit.measure.rows import ns


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


def test_what_went_on_at_once_took_no_longer_than_the_step() -> None:
    here, there = Timeline(ns(10)), Timeline(ns(10))
    for timeline in (here, there):
        timeline.cover("busy", ns(10.5), ns(13.3))
    here.merge(there)
    here.add("tokens", ns(11), 10**12)
    here.bound("busy", ns(13.5))
    here.bound("never", ns(13.5))
    columns = here.columns(ns(13.5))
    assert columns["busy"] == [ns(1), ns(1), ns(1), ns(0.5)]
    assert "never" not in columns
    assert columns["tokens"][1] == 10**12


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


UNIT_NS = NS_PER_SEC // 50
SPANS = st.lists(st.tuples(st.integers(0, 149), st.integers(1, 90)), min_size=1, max_size=30)


@given(SPANS, st.booleans())
def test_time_in_which_anything_was_under_way_counts_once(pairs: list[tuple[int, int]], by_end: bool) -> None:
    spans = [(start, min(150, start + length)) for start, length in pairs]
    busy = [any(start <= at < stop for start, stop in spans) for at in range(150)]
    expected = [sum(busy[second * 50 : (second + 1) * 50]) * UNIT_NS for second in range(3)]
    timeline = Timeline(0)
    for start, stop in sorted(spans, key=lambda span: span[1]) if by_end else spans:
        timeline.cover("busy", start * UNIT_NS, stop * UNIT_NS)
    assert timeline.columns(3 * NS_PER_SEC)["busy"] == expected
    timeline.merge(Timeline(0))  # Looking changed nothing.
    assert timeline.columns(3 * NS_PER_SEC)["busy"] == expected


def test_many_pauses_take_bounded_memory_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvspill.measure.timeline._SPANS_MAX", 8)
    timeline = Timeline(0)
    for millisecond in range(0, 2000, 2):
        timeline.cover("busy", millisecond * NS_PER_MS, (millisecond + 1) * NS_PER_MS)
    assert len(timeline._spans["busy"]) <= 8
    assert timeline.columns(2 * NS_PER_SEC)["busy"] == [NS_PER_SEC // 2] * 2


def test_what_lasted_through_more_pauses_than_are_remembered_never_counts_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvspill.measure.timeline._SPANS_MAX", 8)
    timeline = Timeline(0)
    for millisecond in range(0, 1000, 2):
        timeline.cover("busy", millisecond * NS_PER_MS, (millisecond + 1) * NS_PER_MS)
    timeline.cover("busy", 0, NS_PER_SEC)
    assert NS_PER_SEC // 2 <= timeline.columns(NS_PER_SEC)["busy"][0] <= NS_PER_SEC
