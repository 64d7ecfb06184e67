"""Little's law N = X * R: what the result says of itself is what an independent count sees."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kvspill.result.little import EXPLAINED_FROM, SERVED, WHOLE
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import LittlesLaw
from kvspill.run import stages
from kvspill.run.loadwatch import watch_load
from kvspill.texts import duration
from sim.loads import LITTLE, Load, simulate

LOOK_SECONDS = 0.0317
"""No multiple or part of a second: regular arrivals must not meet the looks."""


class Looks:
    """Counts what is under way many times a second, beside the run's own watch."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.number = 0

    async def watch(self, world: Any, engine: Any, cache: Any, recorder: Any) -> None:
        await world.sleep_until_ns(recorder.window_start_ns)
        while world.now_ns() < recorder.window_end_ns:
            self.number += 1
            self.sums[SERVED] += engine.in_service
            self.sums[WHOLE] += engine.in_service + engine.queued
            for tier in cache.tiers:
                self.sums[tier.name.value] += cache.in_flight(tier.name)
            await world.sleep_ns(round(LOOK_SECONDS * 1e9))

    def mean(self, what: str) -> float:
        return self.sums[what] / self.number


@contextmanager
def looks_beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    looks = Looks()

    async def both(world: Any, engine: Any, cache: Any, recorder: Any) -> None:
        import asyncio

        await asyncio.gather(
            watch_load(world, engine, cache, recorder), looks.watch(world, engine, cache, recorder)
        )

    monkeypatch.setattr(stages, "watch_load", both)
    yield looks


def deviations(load: Load, seconds: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, float]]:
    """By how much each count of the result differs from what was seen; below one in two nothing is said."""
    with looks_beside(monkeypatch) as looks:
        result = simulate(load, duration=seconds)
    for row in result.honesty.littles_law:
        # A batch of blocks is under way until its last block is; a block, until it is itself.
        batches = load.get("io_model") == "prefix" and row.what not in (SERVED, WHOLE)
        if not batches and looks.mean(row.what) >= 0.5:
            yield row.what, float(row.in_system or 0.0) / looks.mean(row.what) - 1


def rows(result: Result) -> dict[str, LittlesLaw]:
    return {row.what: row for row in result.honesty.littles_law}


@pytest.mark.parametrize("name", ["closed-saturated", "overload-sata", "prefix-open"])
def test_what_is_under_way_by_the_rows_is_what_is_seen_within_one_percent(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dict(deviations(LITTLE[name], 60.0, monkeypatch))
    # Busy servers take arrivals in a little late, which shows in a short window of an overload.
    del found[WHOLE]
    assert SERVED in found
    assert all(abs(deviation) <= 0.01 for deviation in found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("name", LITTLE)
def test_on_ten_loads_littles_law_holds_within_one_percent(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dict(deviations(LITTLE[name], 300.0, monkeypatch))
    assert all(abs(deviation) <= 0.01 for deviation in found.values()), found


def test_where_requests_do_not_end_the_mean_of_those_that_did_is_corrected_and_explained() -> None:
    """The survivors of a saturated drive took 10 s, all requests 19 s."""
    result = simulate(LITTLE["overload-sata"], duration=120.0)
    row = rows(result)[SERVED]
    assert row.deviation is not None
    assert row.deviation < -EXPLAINED_FROM
    assert row.in_system == pytest.approx(30.0, rel=0.001)
    assert row.mean_seconds_by_law == pytest.approx(30.0 / float(row.rate_per_sec or 0), rel=0.001)
    assert f"{row.at_end} had not ended" in row.explained
    assert row.mean_seconds_by_law is not None
    assert f"by the law the mean is {duration(1000 * row.mean_seconds_by_law)}" in row.explained


def test_where_nearly_all_end_nothing_needs_to_be_explained() -> None:
    for row in rows(simulate(LITTLE["open-poisson"], duration=100.0)).values():
        assert row.deviation == pytest.approx(0.0, abs=EXPLAINED_FROM)
        assert row.explained == ""
