"""Closed users: each waits for its answer, then thinks, then asks again."""

import asyncio
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from kvspill.records import Request
from kvspill.serving.alarm import Alarm
from kvspill.serving.arrivals import ClosedArrivals, new_conversations
from kvspill.serving.planned import PlannedQueue
from kvspill.serving.population import Lateness, LoadLimits
from kvspill.workload.base import Workload
from kvspill.world import World

_STARTED_AT_ONCE = 1_000


class ClosedPopulation:
    """Each user waits for its answer, then thinks, then asks again.

    Who thinks is an entry of a heap, who waits one of a dictionary. A task for each would take more memory
    than the user itself, and at the end of the load a million of them could not be cancelled in time.
    """

    behind = False

    def __init__(
        self,
        world: World,
        workload: Workload,
        limits: LoadLimits,
        arrive: Callable[[Request, int], bool],
        started: ClosedArrivals | None = None,
        planned: PlannedQueue | None = None,
    ):
        """Started: the first requests of the workload's users, where these have joined already.

        Planned: who must know when users would ask if storage took no time.
        """
        self._world = world
        self._workload = workload
        self._arrivals = started or ClosedArrivals(workload)
        self._limits = limits
        self._arrive = arrive
        self._planned = planned
        self._thinking: list[tuple[int, int, int, Request]] = []
        """Who asks next: when, which of those at the same time, the user, and its request."""
        self._answers: dict[Request, int] = {}
        """The user that waits for the answer to each request."""
        self._left: dict[int, int] = {}
        """How many requests each user has left; below zero for no limit. Those who are here have an entry."""
        self._sessions: dict[int, Iterator[Request]] = {}
        """Of every user so far: one that returns begins new conversations."""
        self._thoughts = 0
        self._joining = True
        self._alarm = Alarm()
        self._error: Exception | None = None
        self.users = 0
        self.exhausted = False
        self.spent = False
        self.lateness = Lateness()

    @property
    def leaving(self) -> int:
        return sum(request.user >= self.users for request in self._answers)

    async def run(self) -> None:
        self.users = self._workload.users
        # A planned order begins with the first of all.
        at_once = _STARTED_AT_ONCE if self._planned is None else max(1, self.users)
        for first in range(0, self.users, at_once):
            if first:
                await asyncio.sleep(0)
                self._ask_due()
            self._start(first, min(first + at_once, self.users), self._workload.users)
        self._joining = False
        self._check_over()
        while not self.exhausted and self._error is None:
            await self._alarm.sleep_ns(self._next_in_ns())
            self._ask_due()
        if self._error is not None:
            raise self._error

    def take_in(self, until_ns: int) -> None:
        """Closed users come by themselves."""

    def answered(self, request: Request) -> None:
        user = self._answers.pop(request, None)
        if user is not None:
            self._think(user)

    def set_users(self, count: int) -> None:
        users, self.users = self.users, count
        self._start(users, count, count)

    def set_speed(self, factor: float) -> None:
        """Closed users keep their own pace: they follow the answers."""

    def hold_back(self) -> None:
        """Closed users leave no backlog behind: each has one request at most."""

    def let_in(self) -> None:
        """Nobody was held back."""

    def _start(self, first: int, end: int, count: int) -> None:
        """So many users share the work; these of them begin."""
        quota = self._limits.max_requests
        new = [user for user in range(first, end) if user not in self._left]
        for user in new:
            self._left[user] = -1 if quota is None else quota // count + (user < quota % count)
        for user in new:
            self._begin(user)

    def _begin(self, user: int) -> None:
        """A user joins, or comes back with new conversations."""
        before = self._sessions.get(user)
        if before is not None:
            self._sessions[user] = new_conversations(before)
            self._think(user)
        elif self._left[user]:
            try:
                request, self._sessions[user] = self._arrivals.take(user)
            except Exception as error:
                self._fail(error)
                return
            # The first request keeps its intended time, so that users don't start in step.
            self._wait(user, request, None if request is None else request.intended_ns)
        else:
            self._leave(user)

    def _think(self, user: int) -> None:
        """A user thinks about its next request, if it is still here and has one left."""
        request = None
        if self._left[user] and user < self.users:
            try:
                request = next(self._sessions[user], None)
            except Exception as error:
                self._fail(error)
                return
        self._wait(user, request, None if request is None else request.think_ns)

    def _fail(self, error: Exception) -> None:
        """A workload that cannot go on, such as a recording with a broken row, ends the run."""
        self._error = self._error or error
        self._alarm.ring()

    def _wait(self, user: int, request: Request | None, pause_ns: int | None) -> None:
        """So long until a user asks; one with nothing to ask leaves."""
        if request is None or pause_ns is None:
            self._leave(user)
            return
        if self._planned is not None:
            self._planned.expect(request, self._planned.now_ns + max(0, pause_ns))
        self._thoughts += 1
        due_ns = self._world.now_ns() + max(0, pause_ns)
        heappush(self._thinking, (due_ns, self._thoughts, user, request))
        if self._thinking[0][1] == self._thoughts:
            self._alarm.ring()

    def _next_in_ns(self) -> int | None:
        """How long nobody asks; None where all wait for answers."""
        return max(0, self._thinking[0][0] - self._world.now_ns()) if self._thinking else None

    def _ask_due(self) -> None:
        """Those ask whose pause is over, so many at once that everything else has its turn."""
        now_ns, thoughts = self._world.now_ns(), self._thoughts
        for _ in range(_STARTED_AT_ONCE):
            if not self._thinking or self._thinking[0][0] > now_ns or self._thinking[0][1] > thoughts:
                return
            due_ns, _thought, user, request = heappop(self._thinking)
            self.lateness.note(now_ns - due_ns)
            self._ask(user, request)

    def _ask(self, user: int, request: Request) -> None:
        if user >= self.users:
            self._leave(user)
            return
        self._left[user] -= 1
        self._answers[request] = user
        if not self._arrive(request, self._world.now_ns()):
            del self._answers[request]
            self._think(user)

    def _leave(self, user: int) -> None:
        del self._left[user]
        self._check_over()

    def _check_over(self) -> None:
        if not self._left and not self._joining:
            self.spent = self._limits.max_requests is None
            self.exhausted = True
            self._alarm.ring()
