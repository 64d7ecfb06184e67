"""A state machine drives the cache with faults against an oracle: C1-C7 under any interleaving."""

import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from kvspill.cache.options import CacheOptions
from kvspill.cache.tier import State
from kvspill.records import HitType, Outcome, Purpose
from sim.harness import POLICY_NAMES, check_quiet, is_lost_on_its_way, make_cache
from sim.machine import SETTINGS, Machine

KIB = 1024
KEYS = st.sampled_from([f"k{n}" for n in range(8)])


class CacheMachine(Machine):
    """Puts, gets, pins and releases, started at any time and left to run for any time."""

    @initialize(
        sizes=st.lists(st.integers(16, 200), min_size=1, max_size=3),
        policy=st.sampled_from(POLICY_NAMES),
        waterfall=st.booleans(),
        allocs=st.sampled_from([0, 1, 2]),
        faults=st.sampled_from([(0.0, 0.0, 0.0), (0.2, 0.0, 0.0), (0.0, 0.2, 0.0), (0.1, 0.1, 0.1)]),
        seed=st.integers(0, 2**32),
    )
    def start(self, sizes: Any, policy: Any, waterfall: bool, allocs: Any, faults: Any, seed: int) -> None:
        self.open_loop(seed)
        options = CacheOptions(waterfall, allocs)
        self.largest = max(sizes) * KIB // 4096 * 4096

        async def build() -> Any:
            return make_cache(
                self.world,
                [size * KIB for size in sizes],
                faults=faults,
                policy=policy,
                options=options,
                rng=random.Random(seed),
            )

        self.cache, self.oracle = self.loop.run_until_complete(build())
        self.writing: set[Any] = set()
        self.told_lost = 0
        self.pinned: list[Any] = []

    @rule(key=KEYS, nbytes=st.integers(1, 120 * KIB), pin=st.booleans())
    def put(self, key: str, nbytes: int, pin: Any) -> None:
        if key not in self.writing:
            self.writing.add(key)
            self.spawn(self._put(key, nbytes, pin))

    async def _put(self, key: str, nbytes: int, pin: Any) -> None:
        self.oracle.forget(key)
        put = await self.cache.put([key], nbytes, Purpose.PREFILL, pin=pin)
        self.writing.discard(key)
        self.told_lost += len(put.lost)
        if put.failure is not None:
            assert put.failure in ("EIO", "too_large", "no_space")
            assert (put.failure == "too_large") == (-(-nbytes // 4096) * 4096 > self.largest)
        elif pin:
            (entry,) = put.entries
            assert entry.state is State.READY
            self.pinned.append((entry, entry.tier))

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        self.spawn(self._get(key))

    async def _get(self, key: str) -> None:
        (outcome,) = await self.cache.get([key], [(Purpose.HISTORY, HitType.MULTI_TURN)])
        if outcome is Outcome.HIT and key not in self.writing:
            read = [op for op in self.oracle.ops if op.key == key and op.verb == "read"][-1]
            assert read.completion.error is None

    @precondition(lambda self: self.pinned)
    @rule(index=st.integers(0, 100))
    def read_pinned(self, index: int) -> None:
        entry, _tier = self.pinned[index % len(self.pinned)]
        self.loop.run_until_complete(self.cache.load([entry], [(Purpose.DECODE, HitType.USER)]))

    @precondition(lambda self: self.pinned)
    @rule(index=st.integers(0, 100))
    def release(self, index: int) -> None:
        entry, _tier = self.pinned.pop(index % len(self.pinned))

        async def release() -> None:
            self.cache.release([entry])

        self.loop.run_until_complete(release())

    @invariant()
    def pinned_entries_stay(self) -> None:
        """C3: a pinned entry is neither evicted nor moved, even when its key was overwritten."""
        for entry, tier in getattr(self, "pinned", ()):
            assert entry.tier is tier
            assert entry.state is State.READY
            assert (entry.ref.key, entry.ref.generation) in tier.backend.objects

    def give_up(self) -> None:
        while self.pinned:
            entry, _tier = self.pinned.pop()
            self.cache.release([entry])

    def check_end(self) -> None:
        check_quiet(self.cache, self.oracle)
        # C6: each entry that a demotion lost is told to exactly one put.
        assert self.told_lost == sum(map(is_lost_on_its_way, self.oracle.ops))


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = SETTINGS


def test_a_move_that_fails_after_its_key_was_overwritten_loses_the_old_generation_alone() -> None:
    """k5 is written anew while its first version moves down; the write below fails, the new version stays."""
    machine = CacheMachine()
    machine.start([108, 120, 100], "lru", True, 0, (0.0, 0.2, 0.0), seed=6649)
    machine.put("k0", 2, pin=False)
    machine.put("k1", 1, pin=True)
    machine.wait(5)
    machine.read_pinned(0)
    machine.put("k2", 65536, pin=False)
    machine.read_pinned(0)
    machine.release(0)
    machine.put("k0", 56344, pin=True)
    machine.wait(63)
    machine.put("k1", 1, pin=False)
    machine.put("k5", 98305, pin=False)
    machine.read_pinned(0)
    machine.wait(65)
    machine.read_pinned(0)
    machine.release(0)
    machine.put("k3", 110593, pin=False)
    machine.put("k4", 8193, pin=False)
    machine.wait(298)
    machine.put("k5", 1, pin=False)
    machine.teardown()
    failed = [op for op in machine.oracle.ops if op.key == "k5" and op.completion.error is not None]
    assert [(op.purpose, op.generation) for op in failed] == [(Purpose.DEMOTION, 6)]
    assert machine.oracle.present["k5"] == 8
