"""One trial: a configuration goes in, a measured result comes out, and nothing is left behind."""

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.config.blocks import engine_preset
from kvspill.machine.environment import environment
from kvspill.machine.kernel import boot_id
from kvspill.machine.probes import Probe
from kvspill.measure.iotrace import IoTrace, open_io_trace
from kvspill.measure.oplog import OpLog, rank_path, trial_path
from kvspill.records import NS_PER_SEC, RunFacts, Tier
from kvspill.result.parts import Part, together
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import Caution
from kvspill.run.backends import blamed, open_backends, prepare_storage
from kvspill.run.build import (
    build_accountant,
    build_cache,
    build_engine,
    build_workload,
    tier_limits,
)
from kvspill.run.ceiling import null_ceiling
from kvspill.run.checkpoint import Keeper, so_far
from kvspill.run.closing import close_all_now, close_within
from kvspill.run.health import Health
from kvspill.run.interpreter import rarer_collections, switch_interval
from kvspill.run.precondition import precondition, preconditioning_cautions
from kvspill.run.preflight import addresses
from kvspill.run.preload import preload
from kvspill.run.progress import Progress
from kvspill.run.ranks import Alone, Gathered, Ranks, share_of
from kvspill.run.remarks import backend_warnings, log_cautions, skipped_rows
from kvspill.run.signals import Interrupts
from kvspill.run.stages import OneStage, Policy, Stage, Stages
from kvspill.run.tracing import layers_of, start_tracing
from kvspill.run.whole import whole_result
from kvspill.serving.accounting import Accountant
from kvspill.serving.arrivals import ClosedArrivals, OpenArrivals
from kvspill.serving.engine import Engine
from kvspill.serving.servers import servers_for
from kvspill.storage.base import Backend
from kvspill.workload.base import Workload
from kvspill.world import World, run_real, run_virtual

if TYPE_CHECKING:
    from kvspill.run.search.controller import Search
    from kvspill.run.search.monitor import WindowMonitor

CEILING_SECONDS = 0.6
_INTERRUPTED_CLOSING_SECONDS = 1.5
_HANGING_CLOSING_SECONDS = 0.1
"""Threads that hang are not waited for once more: another process removes the files."""
_MANY_USERS = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a trial is to do, once the machine was checked."""

    config: Config
    simulated: bool
    storage_bytes: int
    cache_dirs: tuple[Path, ...] = ()
    warnings: Sequence[Caution] = ()
    announced: tuple[str, ...] = ()
    """What is said before the trial: what it will take of the machine, which trial it is."""
    closing_seconds_max: float | None = None
    """How long the removal of files may hold up the end; None where another run follows in this process."""
    closed_by_seconds: float | None = None
    """It may take longer than that as long as it is over by then (monotonic time)."""
    trial: int | None = None
    """Which one it is of several."""
    rank: int | None = None
    """Which of several ranks this is."""
    checkpoint: Path | None = None
    """Where rank 0 keeps what all ranks have measured so far."""

    @property
    def at_addresses(self) -> bool:
        """Whether the storage tier lies at addresses, not in directories."""
        return not self.simulated and not self.cache_dirs and bool(addresses(self.config))

    @property
    def log_ops(self) -> Path | None:
        """Where the trial's operations are logged: no trial overwrites the rows of another."""
        given = self.config.log_ops
        return None if given is None else rank_path(trial_path(Path(given), self.trial), self.rank)

    def closing_seconds(self) -> float | None:
        """How long closing may take from now on."""
        if self.closing_seconds_max is None or self.closed_by_seconds is None:
            return self.closing_seconds_max
        return max(self.closing_seconds_max, self.closed_by_seconds - time.monotonic())


def run_trial(
    plan: Plan, progress: Progress, interrupts: Interrupts | None = None, ranks: Ranks | None = None
) -> Result:
    """Run once and return the result. An interrupted load returns what it measured, marked incomplete.

    Signals are handled here, but where the caller does so for several trials. Every rank gets the result of
    all of them.
    """
    if interrupts is None:
        interrupts = Interrupts()
        with interrupts.handled():
            return run_trial(plan, progress, interrupts, ranks)
    ranks = Alone() if ranks is None else ranks
    opened: list[Backend] = []

    async def main(world: World) -> Result:
        interrupts.watch(asyncio.current_task())
        if interrupts.reason is not None:
            raise asyncio.CancelledError
        limits = tier_limits(plan.config, plan.storage_bytes)
        attending = asyncio.ensure_future(ranks.attend())
        try:
            return await measure(world, limits)
        except BaseException as error:
            ranks.failed(interrupts.stopped_by or str(error) or type(error).__name__)
            raise
        finally:
            attending.cancel()

    async def measure(world: World, limits: dict[Tier, int]) -> Result:
        # First of all: a recording that cannot be read is refused before a word is said.
        with interrupts.computing():
            workload = build_workload(plan.config, world, limits, share_of(plan.config, ranks))
        for text in plan.announced:
            progress.say(text)
        ranks.uses(plan.cache_dirs)
        backends = open_backends(plan.config, world, limits, plan.cache_dirs, plan.simulated)
        # Closed in this order: what storage still writes may lie in the memory of a tier above.
        opened.extend(reversed(backends.values()))
        trial = None
        try:
            # The last tier first: a GPU registers the memory below it, which is touched by then.
            for tier, backend in reversed(backends.items()):
                with blamed(plan.config, tier, plan.simulated):
                    if tier is Tier.STORAGE:
                        await prepare_storage(backend, progress.preparing, plan.config.max_stall)
                    else:
                        await backend.prepare(progress.preparing)
            fallen_back = backend_warnings(opened, progress)
            settled = None
            if plan.config.precondition and Tier.STORAGE in backends:
                storage = backends[Tier.STORAGE]
                settled = await precondition(world, storage, plan.config, plan.storage_bytes, progress)
            trial = Trial(plan, world, backends, limits, progress, ranks)
            part, search = await trial.run(workload, interrupts)
            part.later = [*fallen_back, *preconditioning_cautions(settled)]
            ranks.hand_in(part)
        finally:
            seconds = _interrupted_seconds(ranks) if interrupts.reason else plan.closing_seconds()
            hangs = trial is not None and trial.hangs
            seconds = _HANGING_CLOSING_SECONDS if hangs else seconds
            remote = plan.config if plan.at_addresses else None
            left = await close_within(seconds, opened, plan.cache_dirs, progress, hangs, remote)

        def whole(gathered: Gathered) -> Result:
            result = _whole(plan.config, gathered, ranks, search)
            by_rank = zip(gathered.parts, gathered.words, strict=True)
            result.warnings += together((part.rank, word or ()) for part, word in by_rank)
            result.preconditioning = None if settled is None else asdict(settled)
            result.latency_layers = None if trial is None else trial.layers
            return result

        return await ranks.gather(left, whole)

    with switch_interval(), rarer_collections(plan.simulated):
        try:
            return (run_virtual if plan.simulated else run_real)(main, plan.config.seed)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            interrupts.watch(None)
            # Does nothing but where a second signal cut the closing short.
            close_all_now(opened)


def _interrupted_seconds(ranks: Ranks) -> float:
    # A launcher that ends its ranks kills them a second later: another process removes their files.
    return _INTERRUPTED_CLOSING_SECONDS if ranks.size == 1 else 0.0


def _whole(config: Config, gathered: Gathered, ranks: Ranks, search: "Search | None") -> Result:
    steps = [] if search is None else search.entries(gathered.ended)
    return whole_result(
        config,
        gathered.parts,
        size=ranks.size,
        missing=gathered.missing,
        ended=gathered.ended,
        steps=steps,
        search_cautions=[] if search is None else search.cautions(steps),
        users=None if search is None else gathered.parts[0].users,
    )


class Trial:
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

    async def run(self, workload: Workload, interrupts: Interrupts) -> tuple[Part, "Search | None"]:
        """What this rank measured, and the search that was held, if one was."""
        log = None if self.plan.log_ops is None else OpLog(self.plan.log_ops)
        # As the original's trace has it: a time of day, which stands in the file and measures nothing.
        begun_seconds = datetime.now(UTC).timestamp() - self.world.now_ns() / NS_PER_SEC
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
        others = (observer for observer in (accountant, log, trace, monitor) if observer is not None)
        stages = Stages(world, probe, *others)
        cache = build_cache(config, world, stages.observer, self.backends, self.limits)
        await preload(workload, cache, config.kv, self.progress)
        started = self._started(workload, interrupts)
        start = await self.ranks.begin(world)
        start_ns = start.at_ns
        if log is not None:
            log.count_from(start_ns)
        accountant.begin()
        engine = build_engine(config, world, stages.observer, cache, start_ns, workload, started, self.share)
        interrupts.load_begins(engine.interrupt)
        stages.load_begins(engine, cache)
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
        lost = log_cautions(log, "--log-ops", self.plan.log_ops)
        facts = self._facts(stages.answer, engine, workload, accountant)
        stuck_ages_ns = await health.stuck_ages_ns(ended_ns, patient=engine.interrupted is None)
        self.hangs = bool(stuck_ages_ns)
        health.count_unanswered(stages.answer.recorder)
        facts = replace(facts, errors=health.errors, stuck_ages_ns=stuck_ages_ns)
        part = await self._part(stages.answer, facts, engine, monitor is not None)
        lost += log_cautions(trace, "--io-trace-log", None if trace is None else trace.path)
        part.cautions = [*self.plan.warnings, *lost, *skipped_rows(facts.workload)]
        part.origin_ns, part.late_ns, part.clock_error_ns = start_ns, late_ns, start.clock_error_ns
        stages.hear_no_more()
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
        """Run the load with the policy beside it; an error of either ends both. Returns when it ended."""
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

        async def hold() -> None:
            try:
                await policy.run(finish)
            except BaseException:
                engine.finish()
                raise

        holding = asyncio.ensure_future(hold())
        shown = self.progress.watch(self.world, self.config, engine, stages, cache, policy)
        beside = [asyncio.ensure_future(work) for work in (shown, health.watch(engine.interrupt))]
        if self.progress.live is not None:
            seen = self.progress.live.watch(self.world, self.config, engine, stages, cache, policy)
            beside.append(asyncio.ensure_future(seen))
        told = partial(so_far, self.world, self.config, self.ranks, stages, engine)
        keeper = None
        if self.plan.checkpoint is not None:
            keeper = Keeper(self.config, self.ranks.size, self.plan.checkpoint)
        self.ranks.load_begins(engine.interrupt, told, keeper)
        try:
            await engine.run(end)
        finally:
            for task in (*beside, holding):
                task.cancel()
        if holding.done() and not holding.cancelled():
            holding.result()
        return ended_ns

    def _facts(self, stage: Stage, engine: Engine, workload: Workload, accountant: Accountant) -> RunFacts:
        """The stage's own counts, and what holds for the whole load."""
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
            finished_ns=self.world.now_ns(),
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
            ceiling = await null_ceiling(fixed, self.world, CEILING_SECONDS)
        return Part(
            recorder=stage.recorder,
            facts=facts,
            digest=engine.planned,
            users=users,
            servers=servers_for(users, config.servers),
            probes=stage.probes,
            ceiling=ceiling,
            environment=None if simulated else environment(self.plan.cache_dirs),
            device=(boot_id(), *((stage.probes or {}).get("block_device") or {}).get("devices", ())),
        )


def _unsaid(_done: int, _all: int) -> None:
    """Few users join at once."""
