"""Arrivals: however many come, everything else has its turn, and lateness is known."""

import asyncio
from typing import Any, cast

import pytest

from kvspill.records import QoS, Request
from kvspill.serving.arrivals import ClosedArrivals
from kvspill.serving.closed import ClosedPopulation
from kvspill.serving.population import LoadLimits, OpenPopulation
from kvspill.workload.base import Workload
from kvspill.world import World, run_virtual

MS = 1_000_000


class AllAtOnce:
    """Users who each ask once, all at the same time."""

    elastic = False

    def __init__(self, users: int) -> None:
        self.users = users

    def session(self, user: int, _start_ns: int = 0) -> Any:
        return iter([Request(user, 0, 0, QoS.BATCH, 0, 0, 10, 10)])


class BusyClock:
    """A machine on which every look at the clock takes a millisecond, or more."""

    def __init__(self, world: World, look_ms: int = 1) -> None:
        self._world = world
        self._look_ms = look_ms
        self._looked = 0

    def now_ns(self) -> Any:
        self._looked += 1
        return self._world.now_ns() + self._looked * self._look_ms * MS

    async def sleep_ns(self, duration_ns: int) -> None:
        await self._world.sleep_ns(duration_ns)
        self._looked += 5


def _noted(arrived: list[Request], request: Request) -> bool:
    arrived.append(request)
    return True


async def idle() -> None:
    """Somebody waits for work."""


def test_more_arrivals_than_can_be_taken_in_at_once_do_not_keep_others_from_their_turn() -> None:
    arrived: list[Request] = []
    turns: list[int] = []

    async def main(world: World) -> Any:
        async def others() -> None:
            while True:
                turns.append(len(arrived))
                await asyncio.sleep(0.001)

        beside = asyncio.ensure_future(others())
        population = OpenPopulation(
            cast(World, BusyClock(world)),
            cast(Workload, AllAtOnce(20_000)),
            LoadLimits(0, None, None),
            lambda request, _intended_ns: _noted(arrived, request),
            idle,
        )
        population.take_in(0)
        assert 0 < len(arrived) < 20_000
        await asyncio.wait_for(population.run(), 60)
        beside.cancel()
        return population

    population = run_virtual(main, 1)
    assert len(arrived) == 20_000
    assert len(set(turns)) > 2
    assert max(population.lateness.since(0)) > 10 * MS


def test_in_virtual_time_all_that_have_come_are_taken_in_at_once() -> None:
    arrived: list[Request] = []

    async def main(world: World) -> None:
        population = OpenPopulation(
            world,
            cast(Workload, AllAtOnce(1000)),
            LoadLimits(0, None, None),
            lambda request, _intended_ns: _noted(arrived, request),
            idle,
        )
        population.take_in(0)
        assert population.lateness.since(0) == ()

    run_virtual(main, 1)
    assert len(arrived) == 1000


def test_in_virtual_time_too_a_flood_of_arrivals_does_not_keep_others_from_their_turn() -> None:
    """A signal is seen between two parts of it."""
    arrived: list[Request] = []
    turns: set[int] = set()

    async def main(world: World) -> None:
        async def others() -> None:
            while True:
                turns.add(len(arrived))
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        population = OpenPopulation(
            world,
            cast(Workload, AllAtOnce(35_000)),
            LoadLimits(0, None, None),
            lambda request, _intended_ns: _noted(arrived, request),
            idle,
        )
        population.take_in(0)
        while population.behind:
            await asyncio.sleep(0)
        beside.cancel()
        assert world.now_ns() == 0

    run_virtual(main, 1)
    assert len(arrived) == 35_000
    assert {10_000, 20_000, 30_000} <= turns


def test_a_closed_user_who_wakes_late_is_seen_to() -> None:
    """The pause of a closed user ends at a certain time, too."""

    async def main(world: World) -> Any:
        population = ClosedPopulation(
            cast(World, BusyClock(world, look_ms=5)),
            cast(Workload, AllAtOnce(3)),
            LoadLimits(0, None, None),
            lambda _request, _at_ns: False,
        )
        await population.run()
        return population.lateness.since(0)

    lateness_ns = run_virtual(main, 1)
    assert len(lateness_ns) == 3
    assert min(lateness_ns) >= 5 * MS


def test_closed_users_join_before_the_load_and_not_in_its_time() -> None:
    """A million took half a minute, and a short run was measured with a part of them."""
    asked: list[int] = []

    def arrive(request: Request, _at_ns: int) -> bool:
        asked.append(request.user)
        return False

    async def main(world: World) -> None:
        workload = AllAtOnce(2500)
        joined = ClosedArrivals(cast(Workload, workload), max_requests=2000)
        joined.start_all(lambda _done, _all: None)
        workload.session = lambda *_: pytest.fail("joined late")  # type: ignore[method-assign]
        limits = LoadLimits(0, None, 2000)
        await ClosedPopulation(world, cast(Workload, workload), limits, arrive, joined).run()

    run_virtual(main, 1)
    assert asked == list(range(2000))
