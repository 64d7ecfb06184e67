"""Puts a search together: what it turns, what it decides by, and how long its stages last."""

import math

from kvspill.config import Config
from kvspill.config.limits import interval_seconds, stage_intervals
from kvspill.records import MIB, NS_PER_SEC, QoS
from kvspill.run.progress import Progress
from kvspill.run.ranks import Ranks
from kvspill.run.search import make_mode
from kvspill.run.search.all_ranks import AllRanks, Follower, RankLoad
from kvspill.run.search.baseline import probe_unloaded
from kvspill.run.search.controller import Levels, Search
from kvspill.run.search.lever import SPEED_STEPS, Lever, SpeedLever, UsersLever
from kvspill.run.search.monitor import WHOLE_STAY, WindowMonitor, waiting_by
from kvspill.run.search.options import Pace, SearchOptions, SloTarget
from kvspill.run.stages import Policy, Stages
from kvspill.serving.engine import Engine
from kvspill.storage.base import Backend
from kvspill.workload.base import Workload
from kvspill.world import World

_UNKNOWN_ENTRY_BYTES = 64 * MIB
_SPEED_LOWEST, _SPEED_HIGHEST = 1, 1000 * SPEED_STEPS


async def make_monitor(
    config: Config, storage: Backend | None, progress: Progress, ranks: Ranks
) -> WindowMonitor:
    """What a search decides by, with the speed of the storage tier measured while it is idle.

    Rank 0 alone measures it, once the others are ready and do nothing.
    """
    unloaded = None
    await ranks.others_ready()
    if storage is not None and ranks.index == 0:
        progress.say("timing reads on the idle storage tier, one by one")
        unloaded = await probe_unloaded(storage, config.largest_entry_bytes or _UNKNOWN_ENTRY_BYTES)
        if config.autoscaler_mode == "qos":
            # The saturation that this search is held against is of this figure; the others need none of it.
            progress.say(f"a read alone takes {unloaded}")
    return WindowMonitor(unloaded, config.slo_latency, closed=config.arrival == "closed")


def make_search(
    config: Config,
    world: World,
    workload: Workload,
    engine: Engine,
    stages: Stages,
    monitor: WindowMonitor,
    ranks: Ranks,
) -> tuple[Policy, Search | None]:
    """The search that the configuration asks for, over this load; other ranks than 0 follow it."""
    lever = make_lever(config, workload, engine)
    options = search_options(config, lever, engine.start_ns)
    # With open arrivals those who wait for a server are all that counts; closed users seldom wait for one.
    served = config.arrival == "closed" and config.slo_latency in WHOLE_STAY
    monitor.waiting = waiting_by(config.slo_latency, engine.stays if served else engine.unfinished)
    monitor.own_lateness = engine.lateness
    load = RankLoad(lever, stages, monitor, engine)
    if ranks.index != 0:
        return Follower(world, load, ranks), None
    levels = Levels(world, AllRanks(load, ranks), options)
    search = Search(make_mode(options), levels, lever, options)
    return search, search


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
    sla_ms = {qos: config.judged_qos.of(qos).p95_ms for qos in QoS}
    shares = sum(config.qos.of(qos).share for qos in QoS) or 1.0
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
        rounds_per_sec=_rounds_per_sec(config) if by_users and config.recording is None else math.inf,
        class_shares={qos: config.qos.of(qos).share / shares for qos in QoS},
        value=lever.value,
    )


def _round_ns(config: Config) -> int:
    """A user's mean pause and the generation of its answer, storage apart."""
    return round(sum(share * seconds for share, seconds in _rounds(config)) * NS_PER_SEC)


def _rounds_per_sec(config: Config) -> float:
    """How often a mean user asks where storage takes no time; infinity where nothing else does either."""
    rounds = _rounds(config)
    return sum(share / seconds if seconds else math.inf for share, seconds in rounds)


def _rounds(config: Config) -> list[tuple[float, float]]:
    """Each persona's share of the users, and the seconds of its mean round where storage takes no time."""
    token_seconds = config.generation_ms_per_token / 1000
    return [
        (share, sum(persona.think) / 2 + persona.mean_generated_tokens * token_seconds)
        for share, persona in config.people
    ]
