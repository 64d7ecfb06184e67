"""Servers follow the users: they start at once, and leave without losing a request (L1)."""

import asyncio
from typing import Any

import pytest

from kvspill.serving.servers import ServerPool, servers_for
from kvspill.world import World, run_virtual


@pytest.mark.parametrize(
    ("users", "fixed", "servers"), [(3, None, 3), (500, None, 500), (900, None, 500), (900, 7, 7), (2, 7, 7)]
)
def test_one_server_per_user_up_to_five_hundred_unless_told_otherwise(
    users: int, fixed: int | None, servers: int
) -> None:
    assert servers_for(users, fixed) == servers


class Work:
    """A queue of jobs of one second each, and who is busy."""

    def __init__(self) -> None:
        self.jobs: asyncio.Queue[int] = asyncio.Queue()
        self.busy = 0
        self.most = 0
        self.done: list[int] = []

    async def one(self, begin: Any) -> None:
        job = await self.jobs.get()
        begin()
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await asyncio.sleep(1)
            self.done.append(job)
        finally:
            self.busy -= 1


def test_retired_servers_finish_what_they_have_and_take_nothing_more() -> None:
    async def main(_world: World) -> None:
        work = Work()
        pool = ServerPool(work.one)
        pool.resize(8)
        for job in range(40):
            work.jobs.put_nowait(job)
        await asyncio.sleep(0.5)
        pool.resize(2)
        await asyncio.sleep(1)
        assert sorted(work.done) == list(range(8))
        assert work.busy == 2
        work.most = 0
        await asyncio.sleep(3)
        assert work.most == 2
        pool.resize(5)
        await asyncio.sleep(0.01)
        assert work.busy == 5

    run_virtual(main, 1)


def test_idle_servers_leave_at_once_and_no_request_is_lost() -> None:
    async def main(_world: World) -> None:
        work = Work()
        pool = ServerPool(work.one)
        for count in (5, 1, 6, 2, 4, 3):
            pool.resize(count)
            await asyncio.sleep(0.1)
            assert len(pool.tasks()) == count
        for job in range(7):
            work.jobs.put_nowait(job)
        pool.resize(1)
        pool.resize(3)
        await asyncio.sleep(10)
        assert sorted(work.done) == list(range(7))
        assert work.most == 3

    run_virtual(main, 1)


def test_a_server_that_dies_is_heard() -> None:
    async def main(_world: World) -> None:
        async def dies(_begin: Any) -> None:
            raise ValueError("broken")

        pool = ServerPool(dies)
        pool.resize(3)
        await pool.failure()

    with pytest.raises(ValueError, match="broken"):
        run_virtual(main, 1)
