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


class Everywhere:
    """Lever, windows and gate of all ranks, in the hands of rank 0. Alone, it is those of this process."""

    def __init__(self, lever: Lever, stages: Stages, monitor: WindowMonitor, engine: Engine, ranks: Ranks):
        self._lever = lever
        self._stages = stages
        self._monitor = monitor
        self._engine = engine
        self._ranks = ranks
        self._others: list[Report] = []
        self._own_waiting = monitor.waiting
        monitor.waiting = self._waiting
        self.name, self.level = lever.name, lever.level

    def value(self, level: int) -> int | float:
        return self._lever.value(level)

    def text(self, level: int) -> str:
        return self._lever.text(level)

    def set(self, level: int) -> None:
        self._ranks.order("set", level)
        self._lever.set(level)
        self.level = level

    def begin(self, at_ns: int) -> None:
        self._ranks.order("begin", at_ns - self._engine.start_ns)
        self._stages.begin(at_ns)

    def open(self, at_ns: int) -> None:
        self._ranks.order("open", at_ns - self._engine.start_ns)
        self._stages.open(at_ns)

    def close(self, at_ns: int) -> None:
        self._ranks.order("close", at_ns - self._engine.start_ns)
        self._stages.close(at_ns)

    @property
    def in_service(self) -> int:
        return self._engine.in_service + sum(report.in_service for report in self._others)

    @property
    def leaving(self) -> int:
        return self._engine.leaving + sum(report.leaving for report in self._others)

    def send_away(self) -> int:
        waiting = sum(len(report.waiting[0]) - report.in_service for report in self._others)
        self._ranks.order("send_away")
        return self._engine.send_away() + max(0, waiting)

    def let_in(self) -> None:
        self._ranks.order("let_in")
        self._engine.let_in()

    async def caught_up(self) -> None:
        self._others = list((await self._ranks.reports()).values())
        for report in self._others:
            self._monitor.add(report.taken, report.start_ns - self._engine.start_ns)

    def _waiting(self, at_ns: int) -> "tuple[array[int], array[int]]":
        classes, waits_ns = self._own_waiting(at_ns)
        for report in self._others:
            classes.extend(report.waiting[0])
            waits_ns.extend(report.waiting[1])
        return classes, waits_ns


class Follower:
    """The policy of the other ranks: they do what rank 0 decides."""

    status = None

    def __init__(
        self,
        world: World,
        lever: Lever,
        stages: Stages,
        monitor: WindowMonitor,
        engine: Engine,
        ranks: Ranks,
    ):
        self._world = world
        self._lever = lever
        self._stages = stages
        self._monitor = monitor
        self._engine = engine
        self._ranks = ranks

    async def run(self, finish: Callable[[], None]) -> None:
        while True:
            for what, value in await self._ranks.orders():
                if what == "finish":
                    finish()
                    return
                self._follow(what, value)

    def _follow(self, what: str, value: int) -> None:
        engine, at_ns = self._engine, self._engine.start_ns + value
        if what == "set":
            self._lever.set(value)
        elif what == "begin":
            self._monitor.begin(at_ns)
            self._stages.begin(at_ns)
        elif what == "open":
            self._monitor.begin(at_ns)
            self._stages.open(at_ns)
        elif what == "close":
            self._stages.close(at_ns)
        elif what == "send_away":
            engine.send_away()
        elif what == "let_in":
            engine.let_in()
        elif what == "report":
            self._ranks.report(self._report())

    def _report(self) -> Report:
        engine, now_ns = self._engine, self._world.now_ns()
        waiting = self._monitor.waiting(now_ns)
        return Report(self._monitor.take(), engine.in_service, engine.leaving, waiting, engine.start_ns)
