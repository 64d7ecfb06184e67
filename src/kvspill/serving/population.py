"""The population: what all users have in common, and open ones, who ask at their intended times."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from kvspill.records import NS_PER_SEC, Request
from kvspill.serving.alarm import Alarm
from kvspill.serving.arrivals import OpenArrivals
from kvspill.workload.base import Workload
from kvspill.world import World

LATENESS_SAMPLES_MAX = 100_000
_LOOK_UP_EVERY = 32
_AT_ONCE_NS = 10_000_000
"""Arrivals are taken in for so long at once, then everything else has as long."""
_TAKEN_AT_ONCE_MAX = 10_000
"""In virtual time, too, signals are looked at in between."""


class Lateness:
    """How late requests were seen to come: the last of it, for a long load must not fill memory."""

    def __init__(self) -> None:
        self.count = 0
        self._last: deque[int] = deque(maxlen=LATENESS_SAMPLES_MAX)

    def note(self, late_ns: int) -> None:
        self.count += 1
        self._last.append(late_ns)

    def since(self, count: int) -> tuple[int, ...]:
        """What came after so many, as far as it is still known."""
        return tuple(islice(self._last, max(0, len(self._last) - (self.count - count)), None))


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """When the load ends. Times are of the world's clock."""

    start_ns: int
    end_ns: int | None
    max_requests: int | None


class Population(Protocol):
    """The users of a run. They can come and go; one who leaves still gets the answer it waits for."""

    users: int
    exhausted: bool
    """True once nothing more will arrive."""
    spent: bool
    """True once the workload itself has nothing more to ask: a recording was replayed to its end."""
    behind: bool
    """True where more have arrived than could be taken in so far."""
    lateness: Lateness
    """How late arrivals were seen; of open ones only where a server waited for them: what arrives
    while all are busy is taken in when one of them looks for work, at its intended time and without harm."""

    @property
    def leaving(self) -> int:
        """Retired users who still wait for their last answer."""
        ...

    async def run(self) -> None:
        """Let the users ask until there is nothing more to ask."""
        ...

    def take_in(self, until_ns: int) -> None:
        """Let all those arrive whose time has come; called by servers that look for work."""
        ...

    def answered(self, request: Request) -> None:
        """A request was served."""
        ...

    def set_users(self, count: int) -> None:
        """Start or retire users until there are so many."""
        ...

    def set_speed(self, factor: float) -> None:
        """From now on intended times pass so many times faster than the workload has them."""
        ...

    def hold_back(self) -> None:
        """Nobody arrives until `let_in`; the workload's clock stands still meanwhile."""
        ...

    def let_in(self) -> None:
        """The workload goes on where it was held back."""
        ...


class OpenPopulation:
    """Requests come at their intended times, whatever has been answered.

    Only a server with nothing to do needs to be told of an arrival at its very time; while all are
    busy, arrivals are taken in together as soon as one of them looks for work.
    """

    def __init__(
        self,
        world: World,
        workload: Workload,
        limits: LoadLimits,
        arrive: Callable[[Request, int], bool],
        someone_idle: Callable[[], Awaitable[None]],
        started: OpenArrivals | None = None,
    ):
        """Started: the arrivals of the workload's users, where these have joined already."""
        self._world = world
        self._limits = limits
        self._arrive = arrive
        self._someone_idle = someone_idle
        self._arrivals = started or OpenArrivals(workload)
        self._asked = 0
        self._alarm = Alarm()
        self._speed = 1.0
        self._speed_since_ns = (limits.start_ns, 0)
        """When the speed was last changed: the world's time and the workload's."""
        self._open = asyncio.Event()
        self._open.set()
        self.behind = False
        self.users = 0 if started is None else workload.users
        self.exhausted = False
        self.spent = False
        self.lateness = Lateness()
        self.set_users(workload.users)

    @property
    def leaving(self) -> int:
        """Open users don't wait for answers."""
        return 0

    async def run(self) -> None:
        while not self.exhausted:
            await self._someone_idle()
            await self._open.wait()
            while self.behind:
                await self._world.sleep_ns(_AT_ONCE_NS)
            upcoming_ns = self.upcoming_ns()
            if upcoming_ns is None:
                break
            delay_ns = upcoming_ns - self._world.now_ns()
            if delay_ns > 0:
                # Where users come or go meanwhile, the next request may be another one.
                await self._alarm.sleep_ns(delay_ns)
            if not self._open.is_set():
                continue
            now_ns = self._world.now_ns()
            if now_ns >= upcoming_ns:
                self.lateness.note(now_ns - upcoming_ns)
            self.take_in(now_ns)

    def take_in(self, until_ns: int) -> None:
        if not self._open.is_set() or self.behind:
            # A population that falls behind catches up by itself: a hundred idle servers must not help.
            return
        taken = 0
        while (upcoming_ns := self.upcoming_ns()) is not None and upcoming_ns <= until_ns:
            self._asked += 1
            self._arrive(self._arrivals.pop(), upcoming_ns)
            taken += 1
            if taken % _LOOK_UP_EVERY == 0 and self._world.now_ns() - until_ns > _AT_ONCE_NS:
                self._fall_behind(upcoming_ns, _AT_ONCE_NS)
                return
            if taken == _TAKEN_AT_ONCE_MAX:
                self._fall_behind(upcoming_ns, 0)
                return

    def _fall_behind(self, upcoming_ns: int, pause_ns: int) -> None:
        """More arrive than can be taken in without keeping the loop from all else: the rest comes after it.

        In virtual time, whose clock stands still meanwhile, their number alone decides.
        """
        self.lateness.note(self._world.now_ns() - upcoming_ns)
        self.behind = True
        asyncio.get_running_loop().call_later(pause_ns / NS_PER_SEC, self._catch_up)

    def _catch_up(self) -> None:
        self.behind = False
        self.take_in(self._world.now_ns())

    def answered(self, request: Request) -> None:
        """Open users don't wait for answers."""

    def set_users(self, count: int) -> None:
        now_ns = self._workload_time_ns()
        for user in range(self.users, count):
            self._arrivals.start(user, now_ns if self._asked else 0)
        for user in range(count, self.users):
            self._arrivals.retire(user)
        self.users = count
        self._alarm.ring()

    def set_speed(self, factor: float) -> None:
        self.take_in(self._world.now_ns())
        self._speed_since_ns = (self._world.now_ns(), self._workload_time_ns())
        self._speed = factor
        self._alarm.ring()

    def hold_back(self) -> None:
        self.take_in(self._world.now_ns())
        self._speed_since_ns = (self._world.now_ns(), self._workload_time_ns())
        self._open.clear()
        self._alarm.ring()

    def let_in(self) -> None:
        if self._open.is_set():
            return
        self._speed_since_ns = (self._world.now_ns(), self._workload_time_ns())
        self._open.set()

    def _workload_time_ns(self) -> int:
        """What the workload's own clock shows."""
        since_ns, workload_ns = self._speed_since_ns
        if not self._open.is_set():
            return workload_ns
        return max(0, workload_ns + round((self._world.now_ns() - since_ns) * self._speed))

    def upcoming_ns(self) -> int | None:
        """When the next request comes, or None where none comes any more."""
        intended_ns = None if self._asked == self._limits.max_requests else self._arrivals.next_ns()
        if intended_ns is not None:
            since_ns, workload_ns = self._speed_since_ns
            passes_ns = intended_ns - workload_ns
            at_ns = since_ns + (passes_ns if self._speed == 1.0 else round(passes_ns / self._speed))
            if self._limits.end_ns is None or at_ns < self._limits.end_ns:
                return at_ns
        self.spent = self._arrivals.next_ns() is None
        self.exhausted = True
        return None
