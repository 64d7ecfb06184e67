"""The stages of a trial: each holds the load at one level, with a recorder and counts of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvspill.cache.cache import Cache
from kvspill.machine.probes import Probe
from kvspill.measure.observers import Tee
from kvspill.measure.recorder import Recorder
from kvspill.measure.watch import WindowWatch
from kvspill.records import Observer
from kvspill.result.facts import COUNTS, RunFacts, added
from kvspill.run.build import tier_facts
from kvspill.run.loadwatch import DeviceWatch, watch_load
from kvspill.serving.engine import Engine
from kvspill.world import World


class Policy(Protocol):
    """Decides which stages a trial holds: it looks at those so far and names the next."""

    async def run(self, finish: Callable[[], None]) -> None:
        """Hold stages beside the load; `finish` ends the load once nothing is left to hold."""
        ...

    @property
    def status(self) -> str | None:
        """What a search is doing, in a line; None where there is nothing to say."""
        ...


@dataclass(slots=True)
class Stage:
    """One stage; facts, probes and users are known once its window is closed."""

    recorder: Recorder
    watch: WindowWatch | None = None
    device: DeviceWatch | None = None
    beside: list[asyncio.Future[None]] = field(default_factory=list)
    facts: RunFacts | None = None
    probes: dict[str, Any] | None = None
    users: int = 0


class Stages:
    """Opens and closes the windows of a load. The answer is the last stage that was held to its end, or the
    last one with the users that a question is about.

    Two recorders can be listening: that of the last whole stage, which still gets its share of operations
    that end later (S4), and the one being measured.
    """

    def __init__(self, world: World, probe: Probe | None, *others: Observer):
        """The others see everything, before, between and in the stages."""
        self._world = world
        self._probe = probe
        self._others = others
        self.observer = Tee(*others)
        self._open: Stage | None = None
        self._whole: Stage | None = None
        self._asked: Stage | None = None
        self._over = False

    def load_begins(self, engine: Engine, cache: Cache, asked_users: int | None = None) -> None:
        """What the stages are of, and with how many users the one whose figures are wanted."""
        self._asked_users = asked_users
        self._engine = engine
        self._cache = cache
        self._note_start(engine.start_ns)

    @property
    def answer(self) -> Stage:
        """The last whole stage, of those with the users that were asked about if there is any."""
        assert self._whole is not None, "the end of the load closes a window"
        return self._asked or self._whole

    @property
    def answer_is_last(self) -> bool:
        """Whether no other stage was held to its end after that of the answer."""
        return self.answer is self._whole

    @property
    def measuring(self) -> Recorder | None:
        """The recorder of the stage whose window is open now."""
        return None if self._open is None else self._open.recorder

    @property
    def latest(self) -> Recorder | None:
        """The recorder of the open window, or else of the last one held to its end."""
        stage = self._open or self._whole
        return None if stage is None else stage.recorder

    def begin(self, at_ns: int) -> None:
        """The load changes now; until `open` nothing is measured."""
        if not self._over:
            self._abandon()
            self._note_start(at_ns)

    def open(self, at_ns: int) -> None:
        """The stage's window begins then, and ends with the load at the latest."""
        if self._over:
            return
        recorder = Recorder(at_ns, self._engine.end_ns)
        stage = Stage(recorder)
        if self._probe is not None:
            stage.watch = WindowWatch(self._world, self._probe, at_ns)
            self._beside(stage, stage.watch.run())
            stage.device = DeviceWatch(self._world, self._probe, recorder)
            self._beside(stage, stage.device.run())
        self._beside(stage, watch_load(self._world, self._engine, self._cache, recorder))
        self._open = stage
        self._listen()

    def _beside(self, stage: Stage, work: Coroutine[Any, Any, None]) -> None:
        stage.beside.append(asyncio.ensure_future(work))

    def close(self, at_ns: int) -> None:
        """The stage was held to its end: from now on it is the answer."""
        if self._over:
            # The load ended while the stage's last interval was being waited out: end() has seen to it.
            return
        stage = self._open
        assert stage is not None, "a window was opened"
        stage.probes = None if stage.watch is None else stage.watch.finish()
        if stage.device is not None:
            stage.device.finish()
        stage.recorder.close_window(at_ns)
        stage.users = self._engine.users
        stage.facts = self._facts(stage.recorder, stage.recorder.window_end_ns)
        self._whole = stage
        if stage.users == self._asked_users:
            self._asked = stage
        self._abandon()

    def end(self, at_ns: int) -> None:
        """The load is over. A stage cut short counts only where no other was held to its end."""
        if self._whole is None:
            if self._open is None:
                self.open(at_ns)
            self.close(at_ns)
        else:
            self._abandon()
        self._over = True

    def stop_recording(self) -> None:
        """What was measured is made into a result: nothing that closing does belongs to it."""
        self.observer.observers = ()

    def _abandon(self) -> None:
        for task in () if self._open is None else self._open.beside:
            task.cancel()
        self._open = None
        self._listen()

    def _listen(self) -> None:
        stages = (self._whole, self._open)
        self.observer.observers = (*(stage.recorder for stage in stages if stage is not None), *self._others)

    def _note_start(self, at_ns: int) -> None:
        """What the engine had counted when the load of a stage began."""
        self._start_ns, self._before = at_ns, added([self._engine], *COUNTS)
        self._late_before = self._engine.lateness.count

    def so_far(self, at_ns: int) -> tuple[Recorder, RunFacts] | None:
        """What the latest window holds by now; its recorder is still counting where it is open."""
        recorder = self.latest
        if recorder is None:
            return None
        end_ns = max(recorder.window_start_ns, min(at_ns, recorder.window_end_ns))
        return recorder, self._facts(recorder, end_ns)

    def _facts(self, recorder: Recorder, end_ns: int) -> RunFacts:
        """Of the stage alone: its load begins when its level was set."""
        engine = self._engine
        counts = added([engine], *COUNTS)
        unfinished_qos, unfinished_ages_ns, unfinished_added_ns = engine.unfinished(end_ns)
        services_ns = np.array(engine.service_ages(end_ns), dtype=np.int64)
        stays_ns = np.array(unfinished_ages_ns, dtype=np.int64)
        stays_ns[len(stays_ns) - len(services_ns) :] += services_ns
        return RunFacts(
            simulated=self._world.virtual,
            window_start_ns=recorder.window_start_ns,
            window_end_ns=end_ns,
            load_start_ns=self._start_ns,
            finished_ns=end_ns,
            digest="",
            **{name: count - self._before[name] for name, count in counts.items()},
            unfinished_ages_ns=unfinished_ages_ns,
            unfinished_qos=unfinished_qos,
            unfinished_added_ns=unfinished_added_ns,
            under_way=engine.in_service,
            unfinished_stay_ns=_added(stays_ns, end_ns - recorder.window_start_ns),
            under_way_service_ns=_added(services_ns, end_ns - recorder.window_start_ns),
            arrivals_end_ns=engine.arrivals_end_ns,
            lateness_ns=engine.lateness.since(self._late_before),
            tiers=tier_facts(self._cache),
        )


def _added(ages_ns: NDArray[np.int64], most_ns: int) -> int:
    """The sum of these, of each no more than the window."""
    return int(np.minimum(ages_ns, max(0, most_ns)).sum())


class OneStage:
    """The policy of a plain run: one stage, from the end of the warm-up to the end of the load."""

    status = None

    def __init__(self, stages: Stages, start_ns: int, window_start_ns: int):
        self._stages = stages
        self._start_ns = start_ns
        self._window_start_ns = window_start_ns

    async def run(self, finish: Callable[[], None]) -> None:  # noqa: ARG002 - the load ends by itself
        self._stages.begin(self._start_ns)
        self._stages.open(self._window_start_ns)
