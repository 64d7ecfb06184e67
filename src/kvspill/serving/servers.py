"""The servers of a run: tasks that can be started and retired while the load goes on."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kvspill.records import SERVERS_MAX


def servers_for(users: int, fixed: int | None) -> int:
    """How many servers so many users have: one each up to the maximum, or the fixed number (L1)."""
    return fixed if fixed is not None else min(users, SERVERS_MAX)


class ServerPool:
    """Runs `serve_one` over and over in as many tasks as are wanted.

    A server that is no longer wanted finishes the request it has; one that waits for work leaves at once.
    A server that dies ends the run: its error is what `failure` holds.
    """

    def __init__(self, serve_one: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]):
        self._serve_one = serve_one
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._busy: set[int] = set()
        self._retired: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wanted = 0

    def resize(self, count: int) -> None:
        """Start or retire servers until there are so many."""
        self.wanted = count
        for number in range(count):
            if number not in self._tasks:
                task = asyncio.get_running_loop().create_task(self._live(number))
                self._tasks[number] = task
                task.add_done_callback(partial(self._gone, number))
        for number in [number for number in self._tasks if number >= count and number not in self._busy]:
            self._retired.add(self._tasks[number])
            self._tasks[number].cancel()

    async def failure(self) -> None:
        """Wait until a server dies; raises its error."""
        await self._failed

    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    async def _live(self, number: int) -> None:
        while number < self.wanted:
            try:
                await self._serve_one(lambda: self._busy.add(number))
            finally:
                self._busy.discard(number)

    def _gone(self, number: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(number) is task:
            del self._tasks[number]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)
        elif task in self._retired:
            self._retired.discard(task)
            # It may have been wanted again before it could leave.
            self.resize(self.wanted)
