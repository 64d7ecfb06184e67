"""A search over several ranks: what rank 0 decides happens on all of them, and what they see it sees."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from kvspill.run.ranks import Ranks
from kvspill.run.search.lever import Lever
from kvspill.run.search.monitor import Taken, WindowMonitor
from kvspill.run.stages import Stages
from kvspill.serving.engine import Engine
from kvspill.world import World


@dataclass(frozen=True, slots=True)
class Report:
    """What a rank tells the one that decides. Times are of its own clock."""

    taken: Taken
    in_service: int
    leaving: int
    waiting: "tuple[array[int], array[int]]"
    """Class and wait of each request that is not served yet; open arrivals only."""
    start_ns: int


@dataclass(frozen=True, slots=True)
class RankLoad:
    """What a search turns and sees of the load of one rank."""

    lever: Lever
    stages: Stages
    monitor: WindowMonitor
    engine: Engine

    def obey(self, what: str, value: int = 0) -> int:
        """Do what was decided. Times are counted from the start of the load."""
        at_ns = self.engine.start_ns + value
        if what == "set":
            self.lever.set(value)
        elif what == "begin":
            self.monitor.begin(at_ns)
            self.stages.begin(at_ns)
        elif what == "open":
            self.monitor.begin(at_ns)
            self.stages.open(at_ns)
        elif what == "close":
            self.stages.close(at_ns)
        elif what == "send_away":
            return self.engine.send_away()
        elif what == "let_in":
            self.engine.let_in()
        return 0

    def report(self, now_ns: int) -> Report:
        engine, waiting = self.engine, self.monitor.waiting(now_ns)
        return Report(self.monitor.take(), engine.in_service, engine.leaving, waiting, engine.start_ns)


class AllRanks:
    """The load of all ranks, in the hands of rank 0. Alone, it is that of this process."""

    def __init__(self, load: RankLoad, ranks: Ranks):
        self.lever, self.monitor = load.lever, load.monitor
        self._own = load
        self._engine = load.engine
        self._ranks = ranks
        self._others: list[Report] = []
        self._own_waiting = load.monitor.waiting
        load.monitor.waiting = self._waiting

    def set(self, level: int) -> None:
        self._order("set", level)

    def begin(self, at_ns: int) -> None:
        """The load changes: whatever was seen until now says nothing of the stage."""
        self._order("begin", at_ns - self._engine.start_ns)

    def open(self, at_ns: int) -> None:
        """The window of the stage begins."""
        self._order("open", at_ns - self._engine.start_ns)

    def close(self, at_ns: int) -> None:
        """The stage was held to its end."""
        self._order("close", at_ns - self._engine.start_ns)

    @property
    def in_service(self) -> int:
        return self._engine.in_service + sum(report.in_service for report in self._others)

    @property
    def leaving(self) -> int:
        """Closed users who were retired and still wait for their last answer."""
        return self._engine.leaving + sum(report.leaving for report in self._others)

    def send_away(self) -> int:
        """Dismiss waiting requests and hold back new ones; returns how many were dismissed."""
        waiting = sum(len(report.waiting[0]) - report.in_service for report in self._others)
        return self._order("send_away") + max(0, waiting)

    def let_in(self) -> None:
        """Arrivals go on where they were held back."""
        self._order("let_in")

    def _order(self, what: str, value: int = 0) -> int:
        self._ranks.order(what, value)
        return self._own.obey(what, value)

    async def caught_up(self) -> None:
        """Wait until what all ranks have done by now is known here."""
        self._others = list((await self._ranks.reports()).values())
        for report in self._others:
            self.monitor.add(report.taken, report.start_ns - self._engine.start_ns)

    def _waiting(self, at_ns: int) -> "tuple[array[int], array[int]]":
        classes, waits_ns = self._own_waiting(at_ns)
        for report in self._others:
            classes.extend(report.waiting[0])
            waits_ns.extend(report.waiting[1])
        return classes, waits_ns


class Follower:
    """The policy of the other ranks: they do what rank 0 decides."""

    status = None

    def __init__(self, world: World, load: RankLoad, ranks: Ranks):
        self._world = world
        self._own = load
        self._ranks = ranks

    async def run(self, finish: Callable[[], None]) -> None:
        while True:
            for what, value in await self._ranks.orders():
                if what == "finish":
                    finish()
                    return
                if what == "report":
                    self._ranks.report(self._own.report(self._world.now_ns()))
                else:
                    self._own.obey(what, value)
