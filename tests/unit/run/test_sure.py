"""When a class surely misses its target: never by a few requests, nor early where kvspill itself was late."""

import asyncio
from typing import Any

import pytest

from kvspill.measure.priorities import SURE_COMPLETIONS
from kvspill.records import NS_PER_MS, NS_PER_SEC, QoS
from kvspill.run.search.monitor import WindowMonitor
from kvspill.run.search.options import Pace, SearchOptions, SloTarget
from kvspill.run.search.slo import SloMode
from kvspill.run.search.stage import StageMeasure
from kvspill.serving.population import LATENESS_SAMPLES_MAX
from unit.run.autoscaler_rows import served

OPTIONS = SearchOptions(
    "slo",
    4,
    4,
    4,
    Pace(NS_PER_SEC),
    0,
    60 * NS_PER_SEC,
    slo=SloTarget("added", 95.0, {QoS.BATCH: 1000.0}),
    rounds_per_sec=0.1,
)


def window(requests: int, own_late_ms: float = 0.0) -> StageMeasure:
    """All these requests of one class were late, and kvspill itself saw them come so late."""
    monitor = WindowMonitor(None, "added", closed=True)
    for number in range(requests):
        monitor.own_lateness.note(round(own_late_ms * NS_PER_MS))
        monitor.request(served(9 * number / requests, e2e_ms=2000))
    return monitor.measure(9 * NS_PER_SEC, 10)


@pytest.mark.parametrize(("requests", "sure"), [(3, False), (SURE_COMPLETIONS - 1, False), (20, True)])
def test_a_few_late_requests_fail_a_class_for_sure_neither_early_nor_in_the_end(
    requests: int, sure: bool
) -> None:
    """Three requests, all late while another program had the processors: a no, after nine seconds."""
    found = SloMode(OPTIONS).judge(window(requests))
    assert not found.passes
    assert not found.enough, "fifty are needed for a verdict (S11)"
    assert (found.clear, found.certain) == (sure, sure)


class _Levels:
    """Holds one window, and keeps what would have ended it."""

    def __init__(self, measure: StageMeasure):
        self.measure = measure

    async def hold(self, *given: Any) -> StageMeasure:
        self.ended = tuple(ends(self.measure) for ends in given[3:])
        return self.measure


@pytest.mark.parametrize(("own_late_ms", "goes_on"), [(0.0, False), (249.0, False), (251.0, True)])
def test_a_stage_in_which_kvspill_itself_was_late_is_held_to_its_end(
    own_late_ms: float, goes_on: bool
) -> None:
    levels = _Levels(window(49, own_late_ms))
    search = SloMode(OPTIONS)
    asyncio.run(search._hold(levels, 4, "start", "first stage"))  # type: ignore[arg-type]
    done, patient, hopeless = levels.ended
    assert (not done, patient, not hopeless) == (goes_on, goes_on, goes_on)
    assert search.held[4].judgement.clear, "at its end it may be sure nevertheless"


def test_the_lateness_of_a_window_is_that_of_its_own_requests() -> None:
    monitor = WindowMonitor(None, "added", closed=True)
    monitor.own_lateness.note(700 * NS_PER_MS)
    monitor.begin(0)
    monitor.own_lateness.note(3 * NS_PER_MS)
    assert monitor.measure(NS_PER_SEC, 10).rows.own_late_ms == 3
    taken = monitor.take()
    assert list(taken.own_late_ns) == [3 * NS_PER_MS]
    assert monitor.measure(NS_PER_SEC, 10).rows.own_late_ms == 0
    monitor.add(taken, 0)
    assert monitor.measure(NS_PER_SEC, 10).rows.own_late_ms == 3, "another rank was late"


def test_the_lateness_of_a_window_is_known_after_any_number_of_requests() -> None:
    monitor = WindowMonitor(None, "added", closed=True)
    for _ in range(2 * LATENESS_SAMPLES_MAX):
        monitor.own_lateness.note(0)
    monitor.begin(0)
    monitor.own_lateness.note(300 * NS_PER_MS)
    assert monitor.measure(NS_PER_SEC, 10).rows.own_late_ms == 300
    for _ in range(2 * LATENESS_SAMPLES_MAX):
        monitor.own_lateness.note(400 * NS_PER_MS)
    assert monitor.measure(NS_PER_SEC, 10).rows.own_late_ms == 400
    assert len(monitor.own_lateness.since(0)) == LATENESS_SAMPLES_MAX
