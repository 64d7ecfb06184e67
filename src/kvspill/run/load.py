"""The load of one trial: held in stages, watched, and made into what this rank measured."""

import asyncio
import gc
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspill.cache.cache import Cache
from kvspill.config.blocks import engine_preset
from kvspill.dates import now_seconds
from kvspill.errors import KvspillError
from kvspill.machine.environment import environment
from kvspill.machine.kernel import boot_id
from kvspill.machine.probes import Probe
from kvspill.measure.iotrace import IoTrace, open_io_trace
from kvspill.measure.oplog import OpLog
from kvspill.models.groups import KvSize
from kvspill.records import NS_PER_SEC, Purpose, Tier
from kvspill.result.facts import RunFacts
from kvspill.result.parts import Part
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.settings import BAD_ROWS, OP_LOG
from kvspill.run.build import build_accountant, build_cache, build_engine
from kvspill.run.ceiling import null_ceiling
from kvspill.run.health import Health
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.ranks import Ranks, share_of
from kvspill.run.ranks.checkpoint import Keeper, so_far
from kvspill.run.sharing import places_of
from kvspill.run.signals import Interrupts
from kvspill.run.stages import OneStage, Policy, Stage, Stages
from kvspill.run.status import LoadStatus, look, whole
from kvspill.run.tracing import layers_of, start_tracing
from kvspill.serving.accounting import Accountant
from kvspill.serving.arrivals import ClosedArrivals, OpenArrivals
from kvspill.serving.engine import Engine
from kvspill.serving.servers import servers_for
from kvspill.storage.base import Backend
from kvspill.workload.base import Workload
from kvspill.world import World

if TYPE_CHECKING:
    from kvspill.run.search.controller import Search
    from kvspill.run.search.monitor import WindowMonitor

_MANY_USERS = 20_000
_AT_ONCE = 16
"""Entries that are stored before the load at a time."""


class Load:
    """The load of one trial, held in stages, and what is known of it at the end."""

    def __init__(
        self,
        plan: Plan,
        world: World,
        backends: dict[Tier, Backend],
        limits: dict[Tier, int],
        progress: Progress,
        ranks: Ranks,
    ):
        self.plan = plan
        self.config = plan.config
        self.ranks = ranks
        self.share = share_of(plan.config, ranks)
        self.world = world
        self.backends = backends
        self.limits = limits
        self.progress = progress
        self.layers: dict[str, Any] | None = None
        """After the run: what --trace-latency saw."""
        self.hangs = False
        """After the run: some system call never returned."""
        # Before the load: a device that hangs later gives no answer any more.
        self._environment = None if plan.simulated else environment(plan.cache_dirs)
        self._places = () if plan.simulated else places_of(plan.config, plan.cache_dirs)
        self._device: tuple[str, ...] = ()

    async def run(self, workload: Workload, interrupts: Interrupts) -> tuple[Part, "Search | None"]:
        """What this rank measured, and the search that was held, if one was."""
        log = None if self.plan.log_ops is None else OpLog(self.plan.log_ops, named=self.plan.names_log)
        # As the original's trace has it: a time of day, which stands in the file and measures nothing.
        begun_seconds = now_seconds() - self.world.now_ns() / NS_PER_SEC
        trace = open_io_trace(self.config.io_trace_log, self.plan.trial, begun_seconds)
        tracer = await start_tracing(self.plan.cache_dirs) if self._traced else None
        try:
            part, search = await self._measure(workload, interrupts, log, trace)
            if tracer is not None:
                self.layers = await layers_of(tracer, part.recorder)
            return part, search
        finally:
            if tracer is not None:
                tracer.stop()
            if log is not None:
                log.close()
            if trace is not None:
                trace.drop()

    @property
    def _traced(self) -> bool:
        return self.config.trace_latency and not self.plan.simulated

    async def _measure(
        self, workload: Workload, interrupts: Interrupts, log: OpLog | None, trace: IoTrace | None
    ) -> tuple[Part, "Search | None"]:
        config, world = self.config, self.world
        monitor = await self._monitor()
        accountant = build_accountant(config, self.limits)
        probe = None if self.plan.simulated else Probe(self.plan.cache_dirs)
        self._device = (boot_id(), *(() if probe is None else probe.watched))
        others = (observer for observer in (accountant, log, trace, monitor) if observer is not None)
        stages = Stages(world, probe, *others)
        cache = build_cache(config, world, stages.observer, self.backends, self.limits)
        await _preload(workload, cache, config.kv, self.progress, config.planned_order)
        started = self._started(workload, interrupts)
        start = await self.ranks.begin(world)
        start_ns = start.at_ns
        if log is not None:
            log.count_from(start_ns)
        accountant.begin()
        engine = build_engine(config, world, stages.observer, cache, start_ns, workload, started, self.share)
        interrupts.load_begins(engine.interrupt)
        stages.load_begins(engine, cache, self.plan.asked_users)
        await world.sleep_until_ns(start_ns)
        late_ns = world.now_ns() - start_ns
        window_start_ns = start_ns + round(config.warmup_seconds * NS_PER_SEC)
        policy: Policy = OneStage(stages, start_ns, window_start_ns)
        search = None
        if monitor is not None:
            from kvspill.run.search.build import make_search

            policy, search = make_search(config, world, workload, engine, stages, monitor, self.ranks)
        health = Health(world, config, cache)
        ended_ns = await self._drive(engine, cache, stages, policy, health)
        if engine.interrupted is not None:
            self.ranks.stopped(engine.interrupted)
        lost = _log_cautions(log, "--log-ops", self.plan.log_ops)
        facts = self._facts(stages, engine, workload, accountant)
        stuck_ages_ns = await health.stuck_ages_ns(ended_ns, patient=engine.interrupted is None)
        self.hangs = bool(stuck_ages_ns)
        health.count_unanswered(stages.answer.recorder)
        facts = replace(facts, errors=health.errors, stuck_ages_ns=stuck_ages_ns)
        facts = replace(facts, stuck_in=health.hanging() if stuck_ages_ns else ())
        part = await self._part(stages.answer, facts, engine, monitor is not None)
        lost += _log_cautions(trace, "--io-trace-log", None if trace is None else trace.path)
        part.cautions = [*self.plan.warnings, *lost, *_skipped_rows(facts.workload)]
        part.origin_ns, part.late_ns, part.clock_error_ns = start_ns, late_ns, start.clock_error_ns
        stages.stop_recording()
        return part, search

    def _started(self, workload: Workload, interrupts: Interrupts) -> OpenArrivals | ClosedArrivals:
        """The users join before the load begins: a hundred thousand take seconds to do so."""
        closed = self.config.arrival == "closed"
        started: OpenArrivals | ClosedArrivals
        started = ClosedArrivals(workload, self.config.max_requests) if closed else OpenArrivals(workload)
        said = partial(self.progress.preparing, "users") if workload.users >= _MANY_USERS else _unsaid
        with interrupts.computing():
            started.start_all(said)
        return started

    async def _monitor(self) -> "WindowMonitor | None":
        """What a search decides by; it needs to know how fast the idle device is."""
        if not self.config.enable_autoscaling:
            return None
        from kvspill.run.search.build import make_monitor

        return await make_monitor(self.config, self.backends.get(Tier.STORAGE), self.progress, self.ranks)

    async def _drive(
        self, engine: Engine, cache: Cache, stages: Stages, policy: Policy, health: Health
    ) -> int:
        """Run the load with the policy and the watch beside it; an error of one ends all. Returns when."""
        ended_ns = 0

        def end() -> None:
            nonlocal ended_ns
            ended_ns = self.world.now_ns()
            # Nothing is let go before the result is made: looking through a large backlog would be in vain.
            gc.freeze()
            stages.end(ended_ns)

        def finish() -> None:
            self.ranks.order("finish")
            engine.finish()

        async def hold(work: Coroutine[Any, Any, None]) -> None:
            try:
                await work
            except BaseException:
                engine.finish()
                raise

        works = (policy.run(finish), health.watch(engine.interrupt))
        held = [asyncio.ensure_future(hold(work)) for work in works]
        start_ns = self.world.now_ns()

        def own() -> LoadStatus:
            # What a plain run measured still stands while its last operations return.
            recorder = stages.measuring if self.config.enable_autoscaling else stages.latest
            return look(self.world, start_ns, self.config, engine, recorder, cache, self.share)

        def see() -> LoadStatus:
            return whole(own(), self.ranks.statuses(), each_whole=self.config.per_rank)

        shown = self.progress.watch(self.world, see, stages, policy)
        beside = [asyncio.ensure_future(shown)]
        if self.progress.live is not None:
            seen = self.progress.live.watch(self.world, self.config, engine, stages, cache, policy)
            beside.append(asyncio.ensure_future(seen))
        told = partial(
            so_far, self.world, self.config, self.ranks, stages, engine, self._device, self._places
        )
        keeper = None
        if self.plan.checkpoint is not None:
            keeper = Keeper(self.config, self.ranks.size, self.plan.checkpoint)
        self.ranks.load_begins(engine.interrupt, told, own, keeper)
        try:
            await engine.run(end)
        finally:
            for task in (*beside, *held):
                task.cancel()
        for task in held:
            if task.done() and not task.cancelled():
                task.result()
        return ended_ns

    def _facts(self, stages: Stages, engine: Engine, workload: Workload, accountant: Accountant) -> RunFacts:
        """The counts of the answer's own stage, and what holds for the whole load."""
        stage = stages.answer
        assert stage.facts is not None, "the answer's window is closed"
        io_facts = {
            "name": self.config.io_model,
            "prefill_us_per_token": self.config.generation_us_per_prefill_token,
            **accountant.facts(),
            "storage_ttft_ms": stage.recorder.storage_ttft.statistics_ms(),
            **engine.io_facts,
        }
        if self.config.engine is not None:
            io_facts["preset"] = asdict(engine_preset(self.config.engine))
        return replace(
            stage.facts,
            finished_ns=self.world.now_ns() if stages.answer_is_last else stage.facts.finished_ns,
            digest=engine.digest,
            interrupted=engine.interrupted,
            workload=workload.facts(),
            io_model=io_facts,
        )

    async def _part(self, stage: Stage, facts: RunFacts, engine: Engine, searched: bool) -> Part:
        config, simulated = self.config, self.plan.simulated
        users = self.share.of(stage.users if searched else config.num_users)
        ceiling = None
        if not simulated and facts.interrupted is None and not self.hangs:
            fixed = config
            if searched or self.share.size > 1:
                fixed = config.changed(enable_autoscaling=False, num_users=max(1, users))
            ceiling = await null_ceiling(fixed, self.world)
        return Part(
            recorder=stage.recorder,
            facts=facts,
            digest=engine.planned,
            users=users,
            servers=servers_for(users, config.servers),
            probes=stage.probes,
            ceiling=ceiling,
            environment=self._environment,
            device=self._device,
            storage=self._places,
        )


def _unsaid(_done: int, _all: int) -> None:
    """Few users join at once."""


async def _preload(
    workload: Workload, cache: Cache, kv: KvSize, progress: Progress, in_order: bool = False
) -> None:
    """Store the workload's entries to be found, in their order where that counts; one that can't be stored
    ends the run."""
    entries, at_once = list(workload.preload()), 1 if in_order else _AT_ONCE
    for first in range(0, len(entries), at_once):
        progress.preparing("entries to be found", first, len(entries))
        some = entries[first : first + at_once]
        puts = await asyncio.gather(
            *(
                cache.put([entry.key], kv.of(entry.tokens), Purpose.INGEST, tokens=entry.tokens)
                for entry in some
            )
        )
        for entry, put in zip(some, puts, strict=True):
            if put.failure is not None:
                raise KvspillError(
                    f"storing {entry.key} before the load failed: {put.failure}; "
                    "check the cache directory and --storage-capacity-gb"
                )
    progress.preparing("entries to be found", len(entries), len(entries))


def _log_cautions(log: OpLog | IoTrace | None, flag: str, path: Path | None) -> list[Caution]:
    """The warning that a log of operations lacks rows, where it does; closes the log."""
    if log is None:
        return []
    log.close()
    return [] if log.failure is None else [OP_LOG.of(flag=flag, path=path, reason=log.failure)]


def _skipped_rows(workload: Mapping[str, Any]) -> list[Caution]:
    """The warning that rows of a recording were left out, where some were."""
    skipped = workload.get("bad_rows_skipped", 0)
    if not skipped:
        return []
    return [BAD_ROWS.of(skipped=skipped, first=workload["bad_rows"][0])]
