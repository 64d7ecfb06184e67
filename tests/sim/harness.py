"""Small worlds for simulations: a cache over modelled, failing tiers, and an oracle that watches it."""

import random
from dataclasses import dataclass, field
from typing import Any, cast

from kvspill.cache.cache import Cache
from kvspill.cache.options import CacheOptions
from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.tier import State, TierState
from kvspill.plugins import LEAF_FIRST, Kind, find_plugins
from kvspill.records import (
    CANCELLED,
    Eviction,
    Lookup,
    Observer,
    OpRecord,
    Outcome,
    Purpose,
    RequestRecord,
    Tier,
    Verb,
)
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World
from sim.faults import FaultyBackend

ALL_TIERS = (Tier.GPU, Tier.CPU, Tier.STORAGE)


@dataclass
class Oracle(Observer):
    """Knows which keys must be found, from what the cache says it did."""

    present: dict[str, int] = field(default_factory=dict)
    """The generation of each key that must be found."""
    ops: list[OpRecord] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)
    cache_call_ns: int = 0

    def op(self, record: OpRecord) -> None:
        for one in record.each():
            self.one_op(one)

    def one_op(self, record: OpRecord) -> None:
        self.ops.append(record)
        if is_lost_on_its_way(record):
            self.forget(record.key, record.generation)
        if record.purpose in (Purpose.DEMOTION, Purpose.EVICTION):
            return
        if record.verb is Verb.WRITE and record.completion.error is None:
            self.present[record.key] = record.generation
        elif record.verb is Verb.READ and record.completion.error is not None:
            self.forget(record.key, record.generation)

    def lookup(self, lookup: Lookup) -> None:
        self.lookups.extend([lookup._replace(times=1)] * lookup.times)

    def eviction(self, eviction: Eviction) -> None:
        for one in eviction.each():
            self.evictions.append(one)
            if one.below is None:
                # Of an entry that was overwritten while it moved, only the old generation is lost.
                self.forget(one.key, one.generation)

    def forget(self, key: str, generation: int | None = None) -> None:
        if generation in (None, self.present.get(key)):
            self.present.pop(key, None)

    def request(self, record: RequestRecord) -> None:
        self.requests.append(record)

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        self.cache_call_ns += to_ns - from_ns


def is_lost_on_its_way(op: OpRecord) -> bool:
    """Whether a fault, and not the end of the run, cost an entry that was to be demoted."""
    moves = op.purpose is Purpose.DEMOTION and op.verb is not Verb.DELETE
    return moves and op.completion.error not in (None, CANCELLED)


POLICY_NAMES = tuple(find_plugins(Kind.POLICY).plugins)
LEAF_FIRST_NAMES = tuple(
    name for name, plugin in find_plugins(Kind.POLICY).plugins.items() if LEAF_FIRST in plugin.can
)


def make_policy(name: str, capacity_bytes: int, leaf_first: bool = False) -> EvictionPolicy:
    plugin = find_plugins(Kind.POLICY).get(name, "--eviction-policy")
    policy: EvictionPolicy = plugin.make(PolicyContext(capacity_bytes, leaf_first))
    return policy


def make_tier(name: Tier, backend: Backend, usable_bytes: int, policy: str = "lru") -> TierState:
    made = make_policy(policy, usable_bytes)
    return TierState(name, backend, usable_bytes, usable_bytes, made, evicts=policy != "none")


def make_cache(
    world: World,
    sizes: Any,
    *,
    faults: Any = (0.0, 0.0, 0.0),
    policy: str = "lru",
    options: Any = None,
    rng: Any = None,
    oracle: Any = None,
) -> Any:
    """A cache over len(sizes) tiers of so many bytes, fastest first; faults are (read, write, delete)."""
    oracle = oracle or Oracle()
    tiers = []
    for level, (name, nbytes) in enumerate(zip(ALL_TIERS[-len(sizes) :], sizes, strict=True)):
        speed = DeviceModel(4.0 / (level + 1), 2.0 / (level + 1), 10 * level, 10 * level, 5, concurrency=4)
        inner = ModelledBackend("modelled", speed, world.now_ns)
        read, write, delete = faults
        backend = FaultyBackend(inner, rng or random.Random(0), read, write, delete)
        tiers.append(make_tier(name, backend, nbytes, policy))
    return Cache(tiers, oracle, world.now_ns, options or CacheOptions()), oracle


def check_ledgers(cache: Cache) -> None:
    """What must hold at every moment."""
    for tier in cache.tiers:
        residents = sum(entry.stored_bytes for entry in tier.residents.values())
        idle = sum(entry.stored_bytes for entry in tier.residents.values() if entry.idle)
        assert 0 <= tier.used_bytes <= tier.usable_bytes
        assert residents + tier.lost_bytes <= tier.used_bytes
        assert idle == tier.idle_bytes
        assert len(tier.policy) == len(tier.residents)
        for entry in tier.residents.values():
            assert entry.tier is tier
            assert entry.state is State.READY


def check_quiet(cache: Cache, oracle: Oracle) -> None:
    """What must hold when nothing is under way: every byte is accounted for, nothing is left over."""
    check_ledgers(cache)
    found = set()
    for tier in cache.tiers:
        residents = tier.residents.values()
        assert tier.used_bytes == sum(entry.stored_bytes for entry in residents) + tier.lost_bytes
        kept = {(entry.ref.key, entry.ref.generation) for entry in residents}
        stored = cast(FaultyBackend, tier.backend).objects
        assert kept <= stored
        if tier.lost_bytes == 0:
            assert kept == stored
        found |= {(entry.ref.key, entry.ref.generation) for entry in residents}
    assert found == set(oracle.present.items())
    errors = [lookup for lookup in oracle.lookups if lookup.outcome is Outcome.ERROR]
    failed_reads = [
        op
        for op in oracle.ops
        if op.verb is Verb.READ and op.completion.error and op.purpose is not Purpose.DEMOTION
    ]
    assert len(errors) == len(failed_reads)
