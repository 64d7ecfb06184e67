"""What every eviction policy must keep, as tests: subclass PolicySuite, name your plug-in, run pytest.

from kvspill.testing.policies import PolicySuite
from mypolicy import PLUGIN

class TestMyPolicy(PolicySuite):
    plugin = PLUGIN
"""

import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.plugins import KEEPS_ALL, LEAF_FIRST, Kind
from kvspill.testing.declarations import DeclarationSuite, check_complete

CAPACITY_BYTES = 10_000
ENTRY_BYTES = 100
SEEDS = range(20)
STEPS = 300


class PolicySuite(DeclarationSuite):
    """The suite of an eviction policy."""

    kind = Kind.POLICY
    options: Mapping[str, Any] = MappingProxyType({})
    """Options of the policy to test it with."""

    def make(self, leaf_first: bool = False) -> EvictionPolicy:
        """A fresh policy, as a tier gets it."""
        context = PolicyContext(CAPACITY_BYTES, leaf_first, self.plugin.filled(self.options))
        policy: EvictionPolicy = self.plugin.make(context)
        check_complete(policy, EvictionPolicy)
        return policy

    @property
    def gives_up(self) -> bool:
        return KEEPS_ALL not in self.plugin.can

    def test_an_empty_tier_has_no_victim(self) -> None:
        policy = self.make()
        assert len(policy) == 0
        assert policy.victim(lambda _key: True) is None

    def test_it_counts_what_is_resident(self) -> None:
        policy = self.make()
        for key in "abc":
            policy.insert(key, ENTRY_BYTES)
        assert len(policy) == 3
        policy.remove("b", evicted=False)
        policy.remove("c", evicted=True)
        assert len(policy) == 1

    def test_only_what_may_go_is_named(self) -> None:
        policy = self.make()
        for key in "abcd":
            policy.insert(key, ENTRY_BYTES)
        assert policy.victim(lambda _key: False) is None
        assert policy.victim(lambda key: key == "c") == ("c" if self.gives_up else None)

    def test_a_victim_stays_until_it_is_removed(self) -> None:
        policy = self.make()
        for key in "abcd":
            policy.insert(key, ENTRY_BYTES)
        policy.victim(lambda _key: True)
        assert len(policy) == 4

    def test_a_victim_that_is_used_instead_of_removed_can_be_named_again(self) -> None:
        """A hit rescues it: the tier touches it and it stays."""
        policy = self.make()
        for key in "ab":
            policy.insert(key, ENTRY_BYTES)
        victim = policy.victim(lambda _key: True)
        if victim is not None:
            policy.touch(victim)
        left = set(_evict_all(policy))
        assert left == ({"a", "b"} if self.gives_up else set())

    def test_a_key_may_come_back(self) -> None:
        policy = self.make()
        for evicted in (True, False, True):
            policy.insert("a", ENTRY_BYTES)
            policy.touch("a")
            policy.remove("a", evicted)
        assert len(policy) == 0
        assert policy.victim(lambda _key: True) is None

    @pytest.mark.parametrize("seed", SEEDS)
    def test_every_victim_is_resident_and_may_go_and_all_go_in_the_end(self, seed: int) -> None:
        policy, rng, resident = self.make(), random.Random(seed), dict[str, None]()
        for step in range(STEPS):
            _one_step(policy, rng, resident, f"k{step}", None)
            kept = set(rng.sample(sorted(resident), len(resident) // 2))
            victim = policy.victim(lambda key, kept=kept: key not in kept)  # type: ignore[misc]
            if victim is None:
                assert not self.gives_up or kept == resident.keys()
                continue
            assert victim in resident
            assert victim not in kept
            if rng.random() < 0.5:
                policy.remove(victim, evicted=True)
                del resident[victim]
            else:
                policy.touch(victim)
            assert len(policy) == len(resident)
        assert set(_evict_all(policy)) == (resident.keys() if self.gives_up else set())

    @pytest.mark.parametrize("seed", range(3))
    def test_the_same_calls_name_the_same_victims(self, seed: int) -> None:
        orders = []
        for _ in range(2):
            policy, rng, resident = self.make(), random.Random(seed), dict[str, None]()
            for step in range(STEPS):
                _one_step(policy, rng, resident, f"k{step}", None)
            orders.append([*_evict_all(policy)])
        assert orders[0] == orders[1]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_leaf_first_no_block_goes_before_those_that_continue_it(self, seed: int) -> None:
        if LEAF_FIRST not in self.plugin.can:
            pytest.skip("does not declare leaf-first, and is refused for blocks")
        policy, rng, resident = self.make(leaf_first=True), random.Random(seed), dict[str, None]()
        parents: dict[str, str | None] = {}
        for step in range(STEPS):
            key = f"k{step}"
            parents[key] = rng.choice([None, *sorted(resident)])
            _one_step(policy, rng, resident, key, parents[key])
            if rng.random() < 0.3 and (victim := policy.victim(lambda _key: True)) is not None:
                children = [key for key in resident if parents[key] == victim]
                assert not children, f"{victim} goes before {children}"
                policy.remove(victim, evicted=True)
                del resident[victim]
        for victim in _evict_all(policy):
            assert victim not in {parents[key] for key in resident if key != victim}
            del resident[victim]
        assert not resident or not self.gives_up


def _one_step(
    policy: EvictionPolicy, rng: random.Random, resident: dict[str, None], key: str, parent: str | None
) -> None:
    """Insert a key, and use some of those that are there."""
    policy.insert(key, rng.randint(1, ENTRY_BYTES), parent)
    resident[key] = None
    for used in rng.sample(sorted(resident), min(3, len(resident))):
        policy.touch(used)


def _evict_all(policy: EvictionPolicy) -> Iterator[str]:
    while (key := policy.victim(lambda _key: True)) is not None:
        policy.remove(key, evicted=True)
        yield key
