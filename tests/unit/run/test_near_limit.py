"""A load that passes near its target is measured once more, where time is left."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from kvspill.records import NS_PER_SEC, QoS
from kvspill.result.classes import goes_towards, is_near
from kvspill.run.search.controller import Answer, Levels
from kvspill.run.search.monitor import WindowMonitor
from kvspill.run.search.options import Pace, SearchOptions, SloTarget
from kvspill.run.search.slo import SloMode
from kvspill.run.search.stage import StageMeasure
from unit.run.autoscaler_rows import served


def window(p95_ms: float) -> StageMeasure:
    """Sixty requests, of which one is late: not so few that chance could not make it more."""
    monitor = WindowMonitor(None, "added", closed=True)
    for number in range(60):
        monitor.request(served(1 + number / 10, 1500 if number == 0 else p95_ms))
    return monitor.measure(10 * NS_PER_SEC, 10)


class Scripted:
    """Levels whose windows are given."""

    def __init__(self, windows: Iterator[StageMeasure], left: bool):
        self.actions: list[str] = []
        self._windows = windows
        self._left = left

    async def hold(self, _level: int, action: str, *_given: Callable[..., Any]) -> StageMeasure:
        self.actions.append(action)
        return next(self._windows)

    def time_for(self, _stages: int) -> bool:
        return self._left


def searched(*p95_ms: float, left: bool = True) -> tuple[list[str], Answer]:
    target = SloTarget("added", 95.0, {QoS.BATCH: 1000.0})
    options = SearchOptions("slo", 4, 1, 4, Pace(NS_PER_SEC), 0, 300 * NS_PER_SEC, slo=target)
    levels = Scripted(iter(map(window, p95_ms)), left)
    answer = asyncio.run(SloMode(options).search(cast(Levels, levels)))
    return levels.actions, answer


@pytest.mark.parametrize(
    ("windows", "left", "held"),
    [
        ((816, 966, 970), True, 3),
        ((930, 920, 910), True, 3),
        ((816, 966), False, 2),
        ((500, 510), True, 2),
        ((500, 700), True, 2),
    ],
)
def test_a_pass_near_the_target_is_measured_once_more(
    windows: tuple[float, ...], left: bool, held: int
) -> None:
    actions, answer = searched(*windows, left=left)
    assert actions == ["start", *["confirm"] * (held - 1)]
    (level,) = answer.facts["levels"]
    assert level["windows"] == held
    assert level["classes"]["batch"]["by_window_ms"] == [pytest.approx(ms, rel=0.01) for ms in windows[:held]]


def test_near_is_a_tenth_of_the_target_or_windows_on_their_way_to_it() -> None:
    assert is_near(1000, 938, [])
    assert is_near(1000, 1080, [1080])
    assert not is_near(1000, 1200, [1190, 1210])
    assert is_near(1000, 860, [800, 850, None, 880])
    assert not goes_towards(1000, [880, 800])
    assert goes_towards(1000, [1300, 1150])
