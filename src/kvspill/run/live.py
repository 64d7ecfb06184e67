"""The figures of a run under way, for those who watch it from outside: a snapshot a second, nothing more."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.measure.heatmap import Longs
from kvspill.measure.recorder import Recorder
from kvspill.records import NS_PER_SEC, Verb
from kvspill.run.stages import Policy, Stages
from kvspill.run.status import look
from kvspill.serving.engine import Engine
from kvspill.world import World

INTERVAL_NS = NS_PER_SEC
Labels = tuple[str, ...]
Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Spread:
    """Latencies by band, from the fastest, and their sum."""

    counts: Longs
    sum_ns: int

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(self.counts + other.counts, self.sum_ns + other.sum_ns)


@dataclass(slots=True)
class Tally:
    """Everything that only grows, by name and labels."""

    counts: Counter[tuple[str, Labels]] = field(default_factory=Counter)
    spreads: dict[tuple[str, Labels], Spread] = field(default_factory=dict)

    def plus(self, other: "Tally") -> "Tally":
        counts = self.counts.copy()
        counts.update(other.counts)
        spreads = dict(self.spreads)
        for key, spread in other.spreads.items():
            spreads[key] = spreads[key] + spread if key in spreads else spread
        return Tally(counts, spreads)


class Carried(Generic[Source]):
    """Counts of one source after the other, such as the recorders of stages: they go on, and never back."""

    def __init__(self, read: Callable[[Source], Tally]):
        self._read = read
        self._source: Source | None = None
        self._before = Tally()
        self.sources = 0

    def look(self, source: Source | None) -> Tally:
        """All that was counted by now; without a source nothing was added."""
        if source is not None and source is not self._source:
            if self._source is not None:
                self._before = self._before.plus(self._read(self._source))
            self._source = source
            self.sources += 1
        return self._before if self._source is None else self._before.plus(self._read(self._source))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known at one moment. Another thread may read it: nothing changes in it."""

    states: dict[tuple[str, Labels], float] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    info: dict[str, str] = field(default_factory=dict)


class Live:
    """Keeps the latest snapshot of the runs of this process."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._measured: Carried[Recorder] = Carried(measured)
        self._served: Carried[Engine] = Carried(_served)
        self._failed: Carried[Cache] = Carried(_failed)

    async def watch(
        self, world: World, config: Config, engine: Engine, stages: Stages, cache: Cache, policy: Policy
    ) -> None:
        """Look every second until cancelled, and once more then."""
        start_ns = world.now_ns()

        def now(running: bool) -> None:
            load = look(world, start_ns, config, engine, stages.latest, cache)
            states: dict[tuple[str, Labels], float] = {
                ("running", ()): float(running),
                ("measuring", ()): float(stages.measuring is not None and running),
                ("searching", ()): float(policy.status is not None),
                ("elapsed_seconds", ()): load.elapsed_seconds,
                ("users", ()): load.users,
                ("requests_queued", ()): load.queued,
                ("requests_in_service", ()): load.in_service,
            }
            if load.done_share is not None:
                states["progress_ratio", ()] = load.done_share
            for tier in load.tiers:
                labels = (tier.tier.value,)
                states["tier_used_bytes", labels] = tier.used_bytes
                states["tier_limit_bytes", labels] = tier.limit_bytes
                states["operations_in_flight", labels] = cache.in_flight(tier.tier)
            tally = self._measured.look(stages.measuring).plus(self._served.look(engine))
            tally = tally.plus(self._failed.look(cache))
            tally.counts["stages", ()] = self._measured.sources
            info = {"model": config.model, "io_model": config.io_model, "generation": config.generation_mode}
            self.snapshot = Snapshot(states, tally, info)

        try:
            while not world.virtual:
                now(running=True)
                await world.sleep_ns(INTERVAL_NS)
        finally:
            now(running=False)


def measured(recorder: Recorder) -> Tally:
    """What a recorder counted in its window."""
    tally = Tally()
    counts = tally.counts
    counts["tokens_generated", ()] = recorder.requests.tokens
    for (outcome, *_rest), times in recorder.lookups.items():
        counts["lookups", (outcome.value,)] += times
    for lane in recorder.lanes():
        labels = (lane.tier.value, lane.verb.value)
        if lane.op_count:
            counts["operations", labels] = lane.op_count
        if lane.verb is Verb.DELETE:
            continue
        if lane.byte_count:
            counts["bytes", labels] = lane.byte_count
        spread = lane.latencies.spread()
        if spread is not None and spread[0].any():
            tally.spreads["operation_seconds", labels] = Spread(*spread)
    tally.spreads["request_seconds", ()] = Spread(*recorder.requests_over_time.totals())
    return tally


def _served(engine: Engine) -> Tally:
    """What became of the requests of the whole load."""
    return Tally(
        Counter(
            {
                ("requests", ("arrived",)): engine.arrived,
                ("requests", ("completed",)): engine.completed,
                ("requests", ("failed",)): engine.failed,
                ("requests", ("shed",)): engine.shed,
            }
        )
    )


def _failed(cache: Cache) -> Tally:
    """Operations of the whole load that failed, by kind."""
    rows = cache.errors.items()
    return Tally(Counter({("errors", (tier.value, verb.value, kind)): n for (tier, verb, kind), n in rows}))
