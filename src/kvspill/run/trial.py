"""One trial: a configuration goes in, a measured result comes out, and nothing is left behind."""

import asyncio
import gc
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.machine.environment import environment
from kvspill.machine.probes import Probe
from kvspill.measure.oplog import OpLog
from kvspill.measure.recorder import Recorder
from kvspill.measure.tee import Tee
from kvspill.measure.watch import WindowWatch
from kvspill.records import NS_PER_SEC, Purpose, RunFacts, Tier
from kvspill.result.io_model import io_model_cautions
from kvspill.result.result import build_result
from kvspill.result.warnings import Caution, caution
from kvspill.run.backends import open_backends
from kvspill.run.build import (
    build_accountant,
    build_cache,
    build_engine,
    build_workload,
    tier_facts,
    tier_limits,
)
from kvspill.run.ceiling import null_ceiling
from kvspill.run.closing import close_all_now, close_within
from kvspill.run.health import Health
from kvspill.run.loadwatch import watch_load
from kvspill.run.precondition import precondition, preconditioning_cautions
from kvspill.run.progress import Progress
from kvspill.run.signals import Interrupts
from kvspill.serving.engine import Engine
from kvspill.storage.base import Backend
from kvspill.workload.base import Workload
from kvspill.world import World, run_real, run_virtual

_SWITCH_INTERVAL_SECONDS = 0.0005
"""A thread back from a system call should not wait long for the interpreter (E1)."""
CEILING_SECONDS = 0.6
_INTERRUPTED_CLOSING_SECONDS = 1.5
_PRELOADS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What a trial is to do, once the machine was checked."""

    config: Config
    simulated: bool
    storage_bytes: int
    cache_dirs: tuple[Path, ...] = ()
    warnings: Sequence[Mapping[str, str]] = ()
    closing_seconds_max: float | None = None
    """How long the removal of files may hold up the end; None where another run follows in this process."""
    closed_by_seconds: float | None = None
    """It may take longer than that as long as it is over by then (monotonic time)."""

    def closing_seconds(self) -> float | None:
        """How long closing may take from now on."""
        if self.closing_seconds_max is None or self.closed_by_seconds is None:
            return self.closing_seconds_max
        return max(self.closing_seconds_max, self.closed_by_seconds - time.monotonic())


def run_trial(plan: Plan, progress: Progress, interrupts: Interrupts | None = None) -> dict[str, Any]:
    """Run once and return the result. An interrupted load returns what it measured, marked incomplete.

    Signals are handled here, but where the caller does so for several trials.
    """
    if interrupts is None:
        interrupts = Interrupts()
        with interrupts.handled():
            return run_trial(plan, progress, interrupts)
    opened: list[Backend] = []

    async def main(world: World) -> dict[str, Any]:
        interrupts.watch(asyncio.current_task())
        if interrupts.reason is not None:
            raise asyncio.CancelledError
        limits = tier_limits(plan.config, plan.storage_bytes)
        # First of all: a recording that cannot be read must not cost the time to prepare the tiers.
        workload = build_workload(plan.config, world, limits)
        backends = open_backends(plan.config, world, limits, plan.cache_dirs, plan.simulated)
        opened.extend(backends.values())
        try:
            for backend in backends.values():
                await backend.prepare(progress.preparing)
            fallen_back = backend_warnings(opened, progress)
            settled = None
            if plan.config.precondition and Tier.STORAGE in backends:
                storage = backends[Tier.STORAGE]
                settled = await precondition(world, storage, plan.storage_bytes, progress)
            kind = _search_trial() if plan.config.enable_autoscaling else Trial
            result = await kind(plan, world, backends, limits, progress).run(workload, interrupts)
        finally:
            seconds = _INTERRUPTED_CLOSING_SECONDS if interrupts.reason else plan.closing_seconds()
            left = await close_within(seconds, opened, plan.cache_dirs, progress)
        result["warnings"] += [*fallen_back, *preconditioning_cautions(settled), *left]
        result["preconditioning"] = None if settled is None else asdict(settled)
        return result

    with _switch_interval(), _rarer_collections(plan.simulated):
        try:
            return (run_virtual if plan.simulated else run_real)(main, plan.config.seed)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            interrupts.watch(None)
            # Does nothing but where a second signal cut the closing short.
            close_all_now(opened)


def _search_trial() -> "type[Trial]":
    from kvspill.run.search_trial import SearchTrial

    return SearchTrial


class Trial:
    """The load of one trial and what is known of it at the end."""

    def __init__(
        self,
        plan: Plan,
        world: World,
        backends: dict[Tier, Backend],
        limits: dict[Tier, int],
        progress: Progress,
    ):
        self.plan = plan
        self.config = plan.config
        self.world = world
        self.backends = backends
        self.limits = limits
        self.progress = progress

    async def run(self, workload: Workload, interrupts: Interrupts) -> dict[str, Any]:
        config, world = self.config, self.world
        # Nothing before the load is counted (S3): the recorder's window opens when the load starts.
        recorder = Recorder(0, None, config.bytes_per_token)
        log = None if config.log_ops is None else OpLog(Path(config.log_ops))
        accountant = build_accountant(config, self.limits)
        observer = Tee(recorder, accountant) if log is None else Tee(recorder, accountant, log)
        cache = build_cache(config, world, observer, self.backends, self.limits)
        await self.preload(workload, cache)
        start_ns = world.now_ns()
        if log is not None:
            log.count_from(start_ns)
        window_start_ns = start_ns + round(config.warmup_seconds * NS_PER_SEC)
        accountant.begin(window_start_ns)
        recorder.open_window(window_start_ns, self._end_ns(start_ns))
        engine = build_engine(config, world, observer, cache, start_ns, workload)
        interrupts.load_begins(engine.interrupt)
        facts, probes = await self._measure(engine, recorder, cache, start_ns, window_start_ns)
        if log is not None:
            log.close()
        io_facts = {
            "name": config.io_model,
            "prefill_us_per_token": config.generation_us_per_prefill_token,
            **accountant.facts(),
            **engine.io_facts,
        }
        facts = replace(facts, workload=workload.facts(), io_model=io_facts)
        ceiling = None
        if not self.plan.simulated and facts.interrupted is None:
            ceiling = await null_ceiling(config, world, CEILING_SECONDS)
        return build_result(
            config,
            facts,
            recorder,
            probes,
            [*self.plan.warnings, *skipped_rows(facts.workload), *io_model_cautions(facts.io_model)],
            environment=None if self.plan.simulated else environment(self.plan.cache_dirs),
            ceiling=ceiling,
            trials=config.trials,
        )

    def _end_ns(self, start_ns: int) -> int | None:
        duration = self.config.duration
        return None if duration is None else start_ns + round(duration * NS_PER_SEC)

    async def _measure(
        self, engine: Engine, recorder: Recorder, cache: Cache, start_ns: int, window_start_ns: int
    ) -> tuple[RunFacts, dict[str, Any] | None]:
        """Run the load; what can only be known at its very end is noted then."""
        world = self.world
        watch = None
        if not self.plan.simulated:
            watch = WindowWatch(world, Probe(self.plan.cache_dirs), window_start_ns)
        health = Health(world, self.config, cache)
        beside = [
            health.watch(engine.interrupt),
            self.progress.watch(world, self.config, engine, recorder, cache),
            watch_load(world, engine, recorder),
        ]
        beside += [] if watch is None else [watch.run()]
        tasks = [asyncio.ensure_future(work) for work in beside]
        at_end: dict[str, Any] = {}

        def note_the_end() -> None:
            at_end["probes"] = None if watch is None else watch.finish()
            at_end["window_end_ns"] = recorder.close_window(world.now_ns())
            at_end["under_way"] = engine.in_service
            at_end["unfinished"] = engine.unfinished(at_end["window_end_ns"])
            at_end["tiers"] = tier_facts(cache)
            at_end["health"] = health.facts()

        try:
            await engine.run(note_the_end)
        finally:
            for task in tasks:
                task.cancel()
        facts = RunFacts(
            simulated=self.plan.simulated,
            window_start_ns=window_start_ns,
            window_end_ns=at_end["window_end_ns"],
            load_start_ns=start_ns,
            finished_ns=world.now_ns(),
            digest=engine.digest,
            arrived=engine.arrived,
            completed=engine.completed,
            failed=engine.failed,
            shed=engine.shed,
            unfinished_ages_ns=tuple(wait_ns for _qos, wait_ns in at_end["unfinished"]),
            unfinished_qos=tuple(qos for qos, _wait_ns in at_end["unfinished"]),
            under_way=at_end["under_way"],
            arrivals_end_ns=engine.arrivals_end_ns,
            lateness_ns=tuple(engine.lateness_ns),
            tiers=at_end["tiers"],
            prefix_matches=engine.prefix_matches,
            prefix_bytes_saved=engine.prefix_bytes_saved,
            interrupted=engine.interrupted,
            **at_end["health"],
        )
        return facts, at_end["probes"]

    async def preload(self, workload: Workload, cache: Cache) -> None:
        """Store what must be there before the load begins, several entries at a time."""
        entries = list(workload.preload())
        for first in range(0, len(entries), _PRELOADS_AT_ONCE):
            self.progress.preparing("entries to be found", first, len(entries))
            some = entries[first : first + _PRELOADS_AT_ONCE]
            puts = await asyncio.gather(
                *(
                    cache.put(entry.key, entry.tokens * self.config.bytes_per_token, Purpose.INGEST)
                    for entry in some
                )
            )
            for entry, put in zip(some, puts, strict=True):
                if put.entry is None:
                    raise KvspillError(
                        f"storing {entry.key} before the load failed: {put.failure}; "
                        "check the cache directory and --storage-capacity-gb"
                    )
        self.progress.preparing("entries to be found", len(entries), len(entries))


def skipped_rows(workload: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """The warning that rows of a recording were left out, where some were."""
    skipped = workload.get("bad_rows_skipped", 0)
    if not skipped:
        return []
    message = f"{skipped:,} rows that could not be read were skipped, the first: {workload['bad_rows'][0]}."
    return [caution("bad_rows", message, "Correct the file, or compare only with runs that skip the same.")]


def backend_warnings(backends: Sequence[Backend], progress: Progress) -> list[Caution]:
    """Warnings of backends that prepared themselves otherwise than asked."""
    warnings = [caution(*note) for backend in backends for note in backend.notes()]
    for warning in warnings:
        progress.say(f"warning: {warning['message']} {warning['remedy']}")
    return warnings


@contextmanager
def _rarer_collections(simulated: bool) -> Iterator[None]:
    """A simulation makes millions of small objects and few cycles: look for those less often."""
    before = gc.get_threshold()
    if simulated:
        gc.set_threshold(500_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
