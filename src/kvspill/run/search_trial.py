"""A trial that searches for a limit: the load changes from stage to stage, and one stage is the result."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.config.limits import interval_seconds, stage_intervals
from kvspill.machine.environment import environment
from kvspill.machine.probes import Probe
from kvspill.measure.oplog import OpLog
from kvspill.measure.recorder import Recorder
from kvspill.measure.tee import Tee
from kvspill.measure.watch import WindowWatch
from kvspill.records import MIB, NS_PER_SEC, Observer, QoS, RunFacts, Tier
from kvspill.result.result import build_result
from kvspill.result.warnings import caution
from kvspill.run.build import build_cache, build_engine, tier_facts
from kvspill.run.ceiling import null_ceiling
from kvspill.run.glance import search_text
from kvspill.run.health import Health
from kvspill.run.search import make_mode
from kvspill.run.search.baseline import probe_unloaded
from kvspill.run.search.controller import Controller, Stages
from kvspill.run.search.lever import SPEED_STEPS, Lever, SpeedLever, UsersLever
from kvspill.run.search.monitor import WindowMonitor
from kvspill.run.search.options import Pace, SearchOptions, SloTarget
from kvspill.run.search.windows import StageWindows
from kvspill.run.signals import Interrupts
from kvspill.run.trial import CEILING_SECONDS, Trial, skipped_rows
from kvspill.serving.engine import Engine
from kvspill.workload.base import Workload

_UNKNOWN_ENTRY_BYTES = 64 * MIB
_SPEED_LOWEST, _SPEED_HIGHEST = 1, 1000 * SPEED_STEPS


@dataclass(frozen=True, slots=True)
class _Counters:
    """What the engine had counted at one moment."""

    at_ns: int
    arrived: int
    completed: int
    failed: int
    shed: int
    prefix_matches: int
    prefix_bytes_saved: int
    lateness: int


def _counters(engine: Engine, at_ns: int) -> _Counters:
    return _Counters(
        at_ns,
        engine.arrived,
        engine.completed,
        engine.failed,
        engine.shed,
        engine.prefix_matches,
        engine.prefix_bytes_saved,
        len(engine.lateness_ns),
    )


class SearchTrial(Trial):
    """The result's figures are those of the last stage that was held to its end, never of several mixed."""

    async def run(self, workload: Workload, interrupts: Interrupts) -> dict[str, Any]:
        config, world = self.config, self.world
        unloaded = None
        if Tier.STORAGE in self.backends:
            self.progress.say("measuring the idle storage tier")
            largest_bytes = config.largest_entry_bytes or _UNKNOWN_ENTRY_BYTES
            unloaded = await probe_unloaded(self.backends[Tier.STORAGE], largest_bytes)
            self.progress.say(f"a read on the idle storage tier takes {unloaded}")
        account = _Account(self)
        log = None if config.log_ops is None else OpLog(Path(config.log_ops))
        windows = StageWindows(
            WindowMonitor(config.bytes_per_token, unloaded, config.slo_latency),
            lambda at_ns: Recorder(at_ns, None, config.bytes_per_token),
            account.on_stage,
            account.on_open,
            account.on_close,
        )
        observer: Observer = windows if log is None else Tee(windows, log)
        cache = build_cache(config, world, observer, self.backends, self.limits)
        await self.preload(workload, cache)
        start_ns = world.now_ns()
        if log is not None:
            log.count_from(start_ns)
        engine = build_engine(config, world, observer, cache, start_ns, workload)
        interrupts.load_begins(engine.interrupt)
        lever = make_lever(config, workload, engine)
        options = search_options(config, lever, start_ns)
        stages = Stages(world, lever, windows, options, engine)
        if config.arrival == "open":
            windows.monitor.waiting = engine.unfinished
        controller = Controller(make_mode(options), stages, lever, options)
        health = Health(world, config, cache)
        account.begin(engine, cache, lever, health, start_ns)
        await self._drive(engine, cache, windows, controller, health)
        if log is not None:
            log.close()
        return await self._result(account, windows, controller, workload)

    async def _drive(
        self, engine: Engine, cache: Cache, windows: StageWindows, controller: Controller, health: Health
    ) -> None:
        """Run the load with the controller beside it; an error of either ends both."""

        async def search() -> None:
            try:
                await controller.run(engine.finish)
            except BaseException:
                engine.finish()
                raise

        searching = asyncio.ensure_future(search())
        start_ns = self.world.now_ns()
        following = asyncio.ensure_future(
            self.progress.follow(
                self.world,
                lambda: search_text(
                    self.world, start_ns, self.config, engine, windows.measuring, cache, controller.status
                ),
            )
        )
        guarding = asyncio.ensure_future(health.watch(engine.interrupt))
        try:
            await engine.run(lambda: windows.end(self.world.now_ns()))
        finally:
            following.cancel()
            guarding.cancel()
            searching.cancel()
        if searching.done() and not searching.cancelled():
            searching.result()

    async def _result(
        self, account: "_Account", windows: StageWindows, controller: Controller, workload: Workload
    ) -> dict[str, Any]:
        config, simulated = self.config, self.plan.simulated
        recorder = windows.recorder
        assert recorder is not None, "the end of the load closes a window"
        facts = account.facts(recorder, workload.facts())
        users = account.users
        steps = controller.entries(facts.interrupted)
        ceiling = None
        if not simulated and facts.interrupted is None:
            fixed = config.changed(enable_autoscaling=False, num_users=users)
            ceiling = await null_ceiling(fixed, self.world, CEILING_SECONDS)
        return build_result(
            config,
            facts,
            recorder,
            account.probes,
            [*self.plan.warnings, *skipped_rows(facts.workload), *search_warnings(steps[-1], steps)],
            environment=None if simulated else environment(self.plan.cache_dirs),
            ceiling=ceiling,
            autoscaling=steps,
            users=users,
            trials=config.trials,
        )


class _Account:
    """What was counted in the stage whose window is the result."""

    def __init__(self, trial: Trial):
        self._trial = trial
        self._probe = None if trial.plan.simulated else Probe(trial.plan.cache_dirs)
        self._watch: WindowWatch | None = None
        self._watching: asyncio.Future[None] | None = None
        self._at_end: dict[str, Any] = {}
        self.probes: dict[str, Any] | None = None
        self.users = trial.config.num_users

    def begin(self, engine: Engine, cache: Cache, lever: Lever, health: Health, start_ns: int) -> None:
        self._engine, self._cache, self._lever, self._health = engine, cache, lever, health
        self._stage_start = _counters(engine, start_ns)

    def on_stage(self) -> None:
        self._stage_start = _counters(self._engine, self._trial.world.now_ns())

    def on_open(self) -> None:
        if self._probe is not None:
            self._stop_watching()
            self._watch = WindowWatch(self._trial.world, self._probe, self._trial.world.now_ns())
            self._watching = asyncio.ensure_future(self._watch.run())

    def on_close(self, recorder: Recorder) -> None:
        engine = self._engine
        if self._watch is not None:
            self.probes = self._watch.finish()
        self._stop_watching()
        self.users = engine.users
        self._at_end = {
            "start": self._stage_start,
            "end": _counters(engine, recorder.window_end_ns),
            "unfinished": engine.unfinished(recorder.window_end_ns),
            "tiers": tier_facts(self._cache),
            "health": self._health.facts(),
            "lateness_ns": tuple(engine.lateness_ns[self._stage_start.lateness :]),
        }

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def facts(self, recorder: Recorder, workload: Mapping[str, Any]) -> RunFacts:
        """Of the stage alone: its load begins when its level was set."""
        start: _Counters = self._at_end["start"]
        end: _Counters = self._at_end["end"]
        unfinished = self._at_end["unfinished"]
        return RunFacts(
            simulated=self._trial.plan.simulated,
            window_start_ns=recorder.window_start_ns,
            window_end_ns=recorder.window_end_ns,
            load_start_ns=start.at_ns,
            finished_ns=self._trial.world.now_ns(),
            digest=self._engine.digest,
            arrived=end.arrived - start.arrived,
            completed=end.completed - start.completed,
            failed=end.failed - start.failed,
            shed=end.shed - start.shed,
            unfinished_ages_ns=tuple(wait_ns for _qos, wait_ns in unfinished),
            unfinished_qos=tuple(qos for qos, _wait_ns in unfinished),
            lateness_ns=self._at_end["lateness_ns"],
            tiers=self._at_end["tiers"],
            prefix_matches=end.prefix_matches - start.prefix_matches,
            prefix_bytes_saved=end.prefix_bytes_saved - start.prefix_bytes_saved,
            interrupted=self._engine.interrupted,
            workload=workload,
            **self._at_end["health"],
        )


def make_lever(config: Config, workload: Workload, engine: Engine) -> Lever:
    """Users where more can come; the speed of a recording where they can't."""
    if workload.elastic:
        return UsersLever(engine, config.num_users)
    return SpeedLever(engine, config.trace_speedup)


def search_options(config: Config, lever: Lever, start_ns: int) -> SearchOptions:
    """The configuration as a search needs it."""
    assert config.duration is not None, "checked with the configuration"
    shortest, longest = stage_intervals(config, config.duration)
    pace = Pace(
        interval_ns=round(interval_seconds(config, config.duration) * NS_PER_SEC),
        shortest=shortest,
        longest=longest,
        cooldown=config.autoscaler_cooldown,
    )
    by_users = isinstance(lever, UsersLever)
    sla_ms = {qos: getattr(config.qos, qos.name.lower()).p95_ms for qos in QoS}
    limits_ms = {
        QoS[name.upper()]: config.slo_target_ms or sla_ms[QoS[name.upper()]] for name in config.slo_classes
    }
    return SearchOptions(
        mode=config.autoscaler_mode,
        start=lever.level,
        lowest=config.min_users if by_users else _SPEED_LOWEST,
        highest=config.max_users if by_users else _SPEED_HIGHEST,
        pace=pace,
        start_ns=start_ns,
        end_ns=start_ns + round(config.duration * NS_PER_SEC),
        first_stage_ns=start_ns + round((config.warmup or 0.0) * NS_PER_SEC),
        target_saturation=config.target_saturation,
        up=config.scale_up_factor,
        down=config.scale_down_factor,
        by_storage=config.capacity_metric == "storage" and config.storage_tier == "on",
        slo=SloTarget(config.slo_latency, config.slo_percentile, limits_ms),
        sla_ms=sla_ms,
        with_wait=config.arrival == "closed",
        drain=config.arrival == "open",
        round_ns=_round_ns(config) if by_users else 0,
        value=lever.value,
    )


def _round_ns(config: Config) -> int:
    """A user's mean pause and the generation of its answer, storage apart."""
    people = [persona for persona in config.personas.values() if persona.weight > 0]
    weights = sum(persona.weight for persona in people)
    seconds = 0.0
    for persona in people:
        # A request draws between a quarter of its user's value and the value.
        answer_ms = 0.625 * sum(persona.generate) / 2 * config.generation_ms_per_token
        seconds += persona.weight / weights * (sum(persona.think) / 2 + answer_ms / 1000)
    return round(seconds * NS_PER_SEC)


def search_warnings(last: Mapping[str, Any], steps: list[dict[str, Any]]) -> list[Mapping[str, str]]:
    """What a reader of the answer must know."""
    found: list[Mapping[str, str]] = []
    if not last["concluded"]:
        missing = last["missing_seconds"]
        longer = "Let it run to its end."
        if missing is not None:
            longer = f"Give --duration {missing:.0f} s more, or start nearer with --num-users."
        found.append(caution("autoscaling_inconclusive", str(last["reason"]), longer))
    if last.get("no_verdict"):
        classes = ", ".join(last["no_verdict"])
        found.append(
            caution(
                "no_verdict",
                f"Fewer than 50 requests of these classes completed in the answer's window: {classes}.",
                "Give a longer --autoscaler-stage and --duration, or more users of that class.",
            )
        )
    if any(not step.get("settled", True) for step in steps):
        found.append(
            caution(
                "stage_not_settled",
                "Some stages were measured before a mean round of their users had passed.",
                "Give a longer --autoscaler-stage and --duration.",
            )
        )
    for text in last.get("priority_inversions", ()):
        found.append(
            caution("priority_inversion", f"Priority inversion: {text}.", "Compare with more requests.")
        )
    return found
