"""Puts a run together: tiers and their backends, the cache, the workload and the engine."""

from kvspill.cache.cache import Cache, CacheOptions
from kvspill.cache.policies import make_policy
from kvspill.cache.tier import TierState
from kvspill.config import Config
from kvspill.records import NS_PER_SEC, Observer, Tier, TierFacts
from kvspill.serving.engine import Engine, EngineOptions
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoOptions, make_io_model
from kvspill.storage.base import Backend
from kvspill.workload.base import Workload
from kvspill.workload.registry import make_workload
from kvspill.world import World

MEMORY_USABLE_SHARE = 0.8
"""Share of a memory tier that entries may take (C1)."""


def usable_bytes(tier: Tier, limit_bytes: int) -> int:
    """The usable limit: 80 % of a memory tier, all of the storage (C1)."""
    return limit_bytes if tier is Tier.STORAGE else int(limit_bytes * MEMORY_USABLE_SHARE)


def tier_limits(config: Config, storage_bytes: int) -> dict[Tier, int]:
    """The tiers of this run, fastest first, with their budgets; a tier without one is absent."""
    limits = {Tier.GPU: config.gpu_bytes, Tier.CPU: config.cpu_bytes, Tier.STORAGE: storage_bytes}
    return {tier: limit for tier, limit in limits.items() if limit > 0}


def build_cache(
    config: Config, world: World, observer: Observer, backends: dict[Tier, Backend], limits: dict[Tier, int]
) -> Cache:
    """The cache over the given backends."""
    tiers = []
    for tier, backend in backends.items():
        usable = usable_bytes(tier, limits[tier])
        policy = make_policy(config.eviction_policy, usable)
        tiers.append(TierState(tier, backend, limits[tier], usable, policy))
    options = CacheOptions(
        waterfall=config.placement == "waterfall", max_concurrent_allocs=config.max_concurrent_allocs
    )
    return Cache(tiers, observer, world.now_ns, options)


def build_workload(config: Config, world: World, limits: dict[Tier, int]) -> Workload:
    """Who asks what and when."""
    last = list(limits)[-1]
    return make_workload(config, world, usable_bytes(last, limits[last]))


def build_engine(
    config: Config, world: World, observer: Observer, cache: Cache, start_ns: int, workload: Workload
) -> Engine:
    """The engine that serves a workload through the given cache."""
    io_options = IoOptions(
        bytes_per_token=config.bytes_per_token,
        whole_history=config.history == "all",
        decode_batch_size=config.decode_batch_size,
        prefill_only_tokens=config.prefill_only_tokens,
        prefill_only=config.prefill_only,
        decode_only=config.decode_only,
    )
    generation = Generation(
        round(config.generation_ms_per_token * 1e6), round(config.generation_us_per_prefill_token * 1e3)
    )
    options = EngineOptions(
        servers=config.servers,
        duration_ns=None if config.duration is None else round(config.duration * NS_PER_SEC),
        max_requests=config.max_requests,
        closed=config.arrival == "closed",
        max_queue=config.max_queue,
    )
    return Engine(
        world,
        workload,
        make_io_model(config.io_model, io_options),
        cache,
        generation,
        observer,
        options,
        start_ns,
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
            )
        )
    return tuple(facts)
