"""Puts a run together: tiers and their backends, the cache, the workload and the engine."""

from kvspill.cache.cache import Cache
from kvspill.cache.options import CacheOptions
from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.tier import TierState
from kvspill.config import Config
from kvspill.config.checks import MEMORY_USABLE_SHARE
from kvspill.config.plugged import check_blocks, usable_plugins
from kvspill.plugins import IN_BLOCKS, KEEPS_ALL, Kind, Plugin
from kvspill.records import NS_PER_SEC, Observer, Tier
from kvspill.result.facts import TierFacts
from kvspill.serving.accounting import Accountant
from kvspill.serving.arrivals import ClosedArrivals, OpenArrivals
from kvspill.serving.engine import Engine, EngineOptions
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoModel, IoOptions, make_io_model
from kvspill.serving.write_behind import BATCH_BLOCKS, WriteBehindOptions
from kvspill.storage.base import Backend
from kvspill.workload.base import Workload
from kvspill.workload.divided import ALL_USERS, DividedWorkload, Share
from kvspill.workload.registry import make_workload
from kvspill.world import World


def usable_bytes(tier: Tier, limit_bytes: int) -> int:
    """The usable limit: 80 % of a memory tier, all of the storage (C1)."""
    return limit_bytes if tier is Tier.STORAGE else int(limit_bytes * MEMORY_USABLE_SHARE)


def _usable_bytes(config: Config, tier: Tier, limit_bytes: int) -> int:
    """The usable limit, less what an engine keeps free on storage."""
    usable = usable_bytes(tier, limit_bytes)
    return int(usable * config.storage_usable_share) if tier is Tier.STORAGE else usable


def tier_limits(config: Config, storage_bytes: int) -> dict[Tier, int]:
    """The tiers of this run, fastest first, with their budgets; a tier without one is absent."""
    limits = {Tier.GPU: config.gpu_bytes, Tier.CPU: config.cpu_bytes, Tier.STORAGE: storage_bytes}
    return {tier: limit for tier, limit in limits.items() if limit > 0}


def build_cache(
    config: Config, world: World, observer: Observer, backends: dict[Tier, Backend], limits: dict[Tier, int]
) -> Cache:
    """The cache over the given backends."""
    check_blocks(config, usable_plugins())
    in_blocks = _in_blocks(config)
    tiers = []
    for tier, backend in backends.items():
        usable = _usable_bytes(config, tier, limits[tier])
        plugin = _policy(config, tier)
        policy = plugin.start(PolicyContext(usable, in_blocks, config.options_of(plugin)), EvictionPolicy)
        evicts = KEEPS_ALL not in plugin.can
        tiers.append(TierState(tier, backend, limits[tier], usable, policy, evicts))
    options = CacheOptions(
        waterfall=config.placement == "waterfall",
        max_concurrent_allocs=config.max_concurrent_allocs,
        in_blocks=in_blocks,
        # With memory above storage, a block's uses are counted there before it may sink.
        demote_min_uses=config.admit_uses - 1 if in_blocks else 0,
        in_order=config.planned_order,
    )
    return Cache(tiers, observer, world.now_ns, options)


def _io_model(config: Config) -> Plugin:
    return usable_plugins()[Kind.IO_MODEL].get(config.io_model, "--io-model")


def _in_blocks(config: Config) -> bool:
    return IN_BLOCKS in _io_model(config).can


def _policy(config: Config, tier: Tier) -> Plugin:
    found, own = usable_plugins()[Kind.POLICY], config.storage_eviction_policy
    if tier is Tier.STORAGE and own is not None:
        return found.get(own, "--storage-eviction-policy")
    return found.get(config.eviction_policy, "--eviction-policy")


def build_workload(
    config: Config, world: World, limits: dict[Tier, int], share: Share = ALL_USERS
) -> Workload:
    """Who asks what and when; of several ranks, those who ask here."""
    last = list(limits)[-1]
    workload = make_workload(config, world, usable_bytes(last, limits[last]))
    return workload if share.size == 1 else DividedWorkload(config, workload, share)


def build_engine(
    config: Config,
    world: World,
    observer: Observer,
    cache: Cache,
    start_ns: int,
    workload: Workload,
    started: OpenArrivals | ClosedArrivals | None = None,
    share: Share = ALL_USERS,
) -> Engine:
    """The engine that serves a workload through the given cache."""
    generation = Generation(
        round(config.generation_ms_per_token * 1e6), round(config.generation_us_per_prefill_token * 1e3)
    )
    options = EngineOptions(
        servers=config.servers,
        duration_ns=None if config.duration is None else round(config.duration * NS_PER_SEC),
        # A stream that all users share is divided with its end.
        max_requests=config.max_requests if share.size == 1 or workload.elastic else None,
        share=share,
        closed=config.arrival == "closed",
        max_queue=config.max_queue,
        planned=config.planned_order,
    )
    return Engine(
        world,
        workload,
        build_io_model(config, len(cache.tiers)),
        cache,
        generation,
        observer,
        options,
        start_ns,
        started,
    )


def build_accountant(config: Config, limits: dict[Tier, int]) -> Accountant:
    """Who compares what the I/O model does with what it could do at best."""
    return Accountant(
        build_io_model(config, len(limits)),
        kv=config.kv,
        block_tokens=config.block_tokens,
        capacity_bytes=sum(_usable_bytes(config, tier, limit) for tier, limit in limits.items()),
        recompute=config.recompute,
        chained=_in_blocks(config),
    )


def build_io_model(config: Config, tiers: int) -> IoModel:
    """What a request does to a cache of so many tiers."""
    return make_io_model(config.io_model, _io_options(config, tiers))


def _io_options(config: Config, tiers: int) -> IoOptions:
    return IoOptions(
        kv=config.kv,
        whole_history=config.history == "all",
        decode_batch_size=config.decode_batch_size,
        prefill_only_tokens=config.prefill_only_tokens,
        prefill_only=config.prefill_only,
        decode_only=config.decode_only,
        block_tokens=config.block_tokens,
        prefetch_min_tokens=config.prefetch_min_tokens,
        admit_uses=1 if config.write_policy == "back" and tiers > 1 else config.admit_uses,
        write_behind=_write_behind(config),
        stream_tokens_per_read=config.stream_tokens_per_read,
        own=config.options_of(_io_model(config)),
    )


def _write_behind(config: Config) -> WriteBehindOptions:
    # Where time must decide nothing, one batch follows the other and none is dropped for being late.
    planned = config.planned_order
    wait = None if planned else config.write_max_wait
    return WriteBehindOptions(
        queue_blocks=config.write_queue_blocks,
        workers=1 if planned else config.write_workers,
        batch_blocks=config.write_queue_blocks if config.store_jobs == "request" else BATCH_BLOCKS,
        max_wait_ns=None if wait is None else round(wait * NS_PER_SEC),
        through=config.write_policy == "through",
        promote=config.promote == "on",
        in_order=planned,
    )


def tier_facts(cache: Cache) -> tuple[TierFacts, ...]:
    """The tiers as they stand now."""
    facts = []
    for tier in cache.tiers:
        capabilities = tier.backend.capabilities
        facts.append(
            TierFacts(
                tier=tier.name,
                backend=capabilities.name,
                modelled=capabilities.modelled,
                description=capabilities.description,
                limit_bytes=tier.limit_bytes,
                usable_bytes=tier.usable_bytes,
                used_bytes=tier.used_bytes,
                peak_bytes=tier.peak_bytes,
                entries=len(tier.residents),
                direct_io=capabilities.direct_io,
                verifies=capabilities.verifies,
                files_opened_direct=capabilities.files_opened_direct,
                files_opened_buffered=capabilities.files_opened_buffered,
                crowded_puts=tier.crowded_puts,
                counters=dict(tier.backend.facts()),
            )
        )
    return tuple(facts)
