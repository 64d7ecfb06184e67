"""A state machine drives the cache of blocks with faults: C1-C7 hold for batches, copies and chains, too."""

import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from kvspill.cache.cache import Cache
from kvspill.cache.options import CacheOptions
from kvspill.cache.tier import State, TierState
from kvspill.records import Eviction, HitType, OpRecord, Outcome, Purpose, Tier, Verb
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from sim.faults import FaultyBackend
from sim.harness import LEAF_FIRST_NAMES, Oracle, check_ledgers, make_policy
from sim.machine import SETTINGS, Machine

BLOCK_BYTES = 8192
KIND = (Purpose.HISTORY, HitType.MULTI_TURN)
CHAINS = st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 9))


def keys_of(chain: Any) -> Any:
    """Chains branch: those of one number share their first blocks and then go apart."""
    number, length, branch = chain
    return [f"c{number}b{place}" if place < 4 else f"c{number}x{branch}b{place}" for place in range(length)]


class BlockOracle(Oracle):
    """Knows which tier has which object from the operations alone."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[tuple[Tier, str, int], OpRecord] = {}

    def one_op(self, record: Any) -> None:
        self.ops.append(record)
        place = (record.tier, record.key, record.generation)
        if record.verb is Verb.WRITE and record.completion.error is None:
            self.objects[place] = record
        elif record.verb is Verb.DELETE and record.completion.error is None:
            del self.objects[place]

    def eviction(self, eviction: Eviction) -> None:
        self.evictions.append(eviction)


class LeafCheckedTier(TierState):
    """No block is chosen while one that continues it stays in the same tier."""

    def claim_victims(self, short_bytes: Any) -> Any:
        victims = super().claim_victims(short_bytes)
        for victim, _claim in victims or ():
            children = [entry for entry in self.residents.values() if entry.parent == victim.ref.key]
            assert all(child.claim is not None for child in children), (victim, children)
        return victims


class BlockMachine(Machine):
    """Loads, stores, promotions and puts, started at any time and left to run for any time."""

    @initialize(
        blocks=st.lists(st.integers(1, 30), min_size=1, max_size=3),
        policy=st.sampled_from(LEAF_FIRST_NAMES),
        waterfall=st.booleans(),
        allocs=st.sampled_from([0, 1, 2]),
        min_uses=st.sampled_from([0, 0, 1]),
        faults=st.sampled_from([(0.0, 0.0, 0.0), (0.2, 0.0, 0.0), (0.0, 0.2, 0.0), (0.1, 0.1, 0.1)]),
        seed=st.integers(0, 2**32),
    )
    def start(
        self, blocks: Any, policy: Any, waterfall: bool, allocs: Any, min_uses: Any, faults: Any, seed: int
    ) -> None:
        self.open_loop(seed)
        self.oracle = BlockOracle()
        rng = random.Random(seed)

        async def build() -> Any:
            tiers = []
            for level, (name, count) in enumerate(zip(list(Tier)[-len(blocks) :], blocks, strict=True)):
                speed = DeviceModel(
                    4 / (level + 1), 2 / (level + 1), 10 * level, 10 * level, 5, concurrency=4
                )
                backend = FaultyBackend(ModelledBackend("m", speed, self.world.now_ns), rng, *faults)
                nbytes = count * BLOCK_BYTES
                made = make_policy(policy, nbytes, leaf_first=True)
                evicts = policy != "none"
                tiers.append(LeafCheckedTier(name, backend, nbytes, nbytes, made, evicts))
            options = CacheOptions(waterfall, allocs, in_blocks=True, demote_min_uses=min_uses)
            return Cache(tiers, self.oracle, self.world.now_ns, options)

        self.cache = self.loop.run_until_complete(build())
        self.loading: list[Any] = []

    @rule(chain=CHAINS)
    def store(self, chain: Any) -> None:
        keys = keys_of(chain)
        self.spawn(self._store(keys))

    async def _store(self, keys: Any) -> None:
        put = await self.cache.put(
            keys, BLOCK_BYTES, Purpose.PREFILL, parents=[None, *keys[:-1]], replace=False
        )
        assert len(put.entries) + len(put.failed) + put.refused <= len(keys)

    @rule(chain=CHAINS)
    def load(self, chain: Any) -> None:
        self.spawn(self._load(keys_of(chain)))

    async def _load(self, keys: Any) -> None:
        entries = []
        for key in keys:
            entry = self.cache.find(key)
            if entry is None or entry.state is not State.READY:
                break
            entries.append(entry)
        if not entries:
            return
        places = [(entry, entry.tier) for entry in entries]
        self.loading.append(places)
        outcomes = await self.cache.load(entries, [KIND] * len(entries))
        self.loading.remove(places)
        assert len(outcomes) == len(entries)

    @rule(chain=CHAINS)
    def promote(self, chain: Any) -> None:
        self.spawn(self.cache.promote(keys_of(chain)))

    @rule(key=st.sampled_from(["doc0", "doc1"]), nbytes=st.integers(1, 5 * BLOCK_BYTES))
    def put(self, key: str, nbytes: int) -> None:
        if not any(task.get_name() == key for task in self.tasks if not task.done()):
            self.spawn(self.cache.put([key], nbytes, Purpose.RAG), name=key)

    @rule(chain=CHAINS)
    def wait_for_one_on_its_way(self, chain: Any) -> None:
        async def settled() -> None:
            entry = self.cache.find(keys_of(chain)[-1])
            if entry is not None:
                await self.cache.settled(entry)
                assert entry.state in (State.READY, State.GONE, State.MOVING)

        self.spawn(settled())

    @invariant()
    def blocks_being_loaded_stay(self) -> None:
        """C3, C4: what is being read is neither evicted nor moved."""
        for places in getattr(self, "loading", ()):
            for entry, tier in places:
                assert entry.tier is tier
                assert (entry.ref.key, entry.ref.generation) in tier.backend.objects

    @precondition(lambda self: hasattr(self, "cache"))
    @rule()
    def a_copy_has_a_home_below(self) -> None:
        for key, copy in self.cache._core.copies.items():
            home = self.cache._core.homes.get(key)
            assert home is not None
            assert home is not copy
            assert home.ref == copy.ref
            assert home.tier is self.cache.tiers[-1]

    def check_end(self) -> None:
        check_ledgers(self.cache)
        for tier in self.cache.tiers:
            residents = tier.residents.values()
            assert tier.used_bytes == sum(entry.stored_bytes for entry in residents) + tier.lost_bytes
            assert not any(entry.pins or entry.claim for entry in residents)
            kept = {(tier.name, entry.ref.key, entry.ref.generation) for entry in residents}
            known = {place for place in self.oracle.objects if place[0] is tier.name}
            assert kept <= known
            if tier.lost_bytes == 0:
                assert kept == known
        for tier in self.cache.tiers:
            for key in tier.residents:
                assert self.cache.find(key) is not None
        errors = [lookup for lookup in self.oracle.lookups if lookup.outcome is Outcome.ERROR]
        failed = [
            op
            for op in self.oracle.ops
            if op.verb is Verb.READ and op.completion.error and op.purpose is not Purpose.DEMOTION
        ]
        assert len(errors) == len(failed)


TestBlockMachine = BlockMachine.TestCase
TestBlockMachine.settings = SETTINGS
