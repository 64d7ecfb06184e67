"""Operations in flight: the end of a run waits for their answers, and knows those that never came."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from kvspill.records import Tier, Verb


class Unanswered(NamedTuple):
    """Operations of one batch that the run ended without."""

    tier: Tier
    verb: Verb
    submitted_ns: int
    operations: int


class InFlight:
    """Knows the calls of backends under way: `with in_flight.call(…)` around each of them."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._calls: set[_Call] = set()
        self._none = asyncio.Event()
        self._none.set()
        self._stopping = False
        self._given_up: list[Unanswered] = []

    def call(self, tier: Tier, verb: Verb, operations: int) -> "_Call":
        return _Call(self, Unanswered(tier, verb, self._clock_ns(), operations))

    async def over(self) -> None:
        """The run ends: wait until every call was answered. One that is cancelled meanwhile never was."""
        self._stopping = True
        await self._none.wait()

    def unanswered(self) -> list[Unanswered]:
        """What was not answered by now, oldest first."""
        found = [*self._given_up, *(call.what for call in self._calls)]
        return sorted(found, key=lambda what: what.submitted_ns)

    def operations(self, tier: Tier) -> int:
        """How many reads and writes of a tier are under way now, those included that wait for a thread."""
        calls = (call.what for call in self._calls if call.what.verb is not Verb.DELETE)
        return sum(what.operations for what in calls if what.tier is tier)

    def begin(self, call: "_Call") -> None:
        self._calls.add(call)
        self._none.clear()

    def end(self, call: "_Call", answered: bool) -> None:
        self._calls.remove(call)
        if not answered and self._stopping:
            self._given_up.append(call.what)
        if not self._calls:
            self._none.set()


class _Call:
    __slots__ = ("_all", "what")

    def __init__(self, all_calls: InFlight, what: Unanswered) -> None:
        self._all = all_calls
        self.what = what

    def __enter__(self) -> None:
        self._all.begin(self)

    def __exit__(self, error: object, *_more: object) -> None:
        self._all.end(self, answered=error is None)
