"""One trial: a configuration goes in, a measured result comes out, and nothing is left behind."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import NS_PER_SEC, RunFacts, Tier
from kvspill.report.result import build_result
from kvspill.serving.engine import Engine
from kvspill.storage.base import Backend
from kvspill.suite.assembly import build_cache, build_engine, tier_facts, tier_limits
from kvspill.suite.backends import open_backends
from kvspill.suite.progress import Progress
from kvspill.world import World, run_real, run_virtual

UNLIMITED_BYTES = 1 << 50
"""Capacity of a simulated storage tier that nobody limits."""

_SWITCH_INTERVAL_SECONDS = 0.0005
"""A thread back from a system call should not wait long for the interpreter (E1)."""


@dataclass(slots=True)
class Interrupts:
    """SIGINT and SIGTERM end the load; a second one ends the program."""

    engine: Engine | None = None
    task: "asyncio.Task[Any] | None" = None
    reason: str | None = None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        if self.reason is not None or self.task is None:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name
        self.task.get_loop().call_soon_threadsafe(self._end)

    def _end(self) -> None:
        assert self.task is not None
        if self.engine is None:
            self.task.cancel()
        else:
            self.engine.interrupt(f"stopped by {self.reason}")


def run_trial(config: Config, *, simulated: bool, storage_bytes: int, progress: Progress) -> dict[str, Any]:
    """Run once and return the result. An interrupted run returns what it measured, marked incomplete."""
    interrupts = Interrupts()

    async def main(world: World) -> dict[str, Any]:
        interrupts.task = asyncio.current_task()
        limits = tier_limits(config, storage_bytes)
        backends = open_backends(config, world, limits, simulated)
        try:
            for backend in backends.values():
                await backend.prepare(progress.preparing)
            return await _measure(config, world, backends, limits, interrupts, progress, simulated)
        finally:
            for backend in backends.values():
                await backend.close()

    with _handling(interrupts), _switch_interval():
        try:
            return (run_virtual if simulated else run_real)(main, config.seed)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def _measure(
    config: Config,
    world: World,
    backends: dict[Tier, Backend],
    limits: dict[Tier, int],
    interrupts: Interrupts,
    progress: Progress,
    simulated: bool,
) -> dict[str, Any]:
    """The load itself: warm-up, window, and the end."""
    start_ns = world.now_ns()
    window_start_ns = start_ns + round(config.warmup_seconds * NS_PER_SEC)
    end_ns = None if config.duration is None else start_ns + round(config.duration * NS_PER_SEC)
    recorder = Recorder(window_start_ns, end_ns, config.bytes_per_token)
    cache = build_cache(config, world, recorder, backends, limits)
    engine = build_engine(config, world, recorder, cache, start_ns)
    interrupts.engine = engine
    watcher = asyncio.ensure_future(progress.watch(world, config, engine, recorder, cache))
    at_end: dict[str, Any] = {}

    def on_end() -> None:
        ended_ns = recorder.close_window(world.now_ns())
        ages_ns = engine.unfinished_ages_ns(ended_ns)
        at_end.update(window_end_ns=ended_ns, tiers=tier_facts(cache), ages_ns=tuple(ages_ns))

    try:
        await engine.run(on_end)
    finally:
        watcher.cancel()
    facts = RunFacts(
        simulated=simulated,
        window_start_ns=window_start_ns,
        window_end_ns=at_end["window_end_ns"],
        load_start_ns=start_ns,
        finished_ns=world.now_ns(),
        digest=engine.digest,
        arrived=engine.arrived,
        completed=engine.completed,
        failed=engine.failed,
        shed=engine.shed,
        unfinished_ages_ns=at_end["ages_ns"],
        lateness_ns=tuple(engine.lateness_ns),
        tiers=at_end["tiers"],
        prefix_matches=engine.prefix_matches,
        prefix_bytes_saved=engine.prefix_bytes_saved,
        interrupted=engine.interrupted,
    )
    return build_result(config, facts, recorder, trials=config.trials)


@contextmanager
def _handling(interrupts: Interrupts) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, interrupts.handle) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
