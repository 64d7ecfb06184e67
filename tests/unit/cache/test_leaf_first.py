"""Leaf-first eviction: no block goes while one that continues it stays."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.harness import LEAF_FIRST_NAMES, make_policy


def anything(_key: str) -> Any:
    return True


def chain(policy: Any, *keys: Any) -> None:
    for key, parent in zip(keys, (None, *keys[:-1]), strict=True):
        policy.insert(key, 1, parent)


def evict_all(policy: Any) -> Any:
    order = []
    while (key := policy.victim(anything)) is not None:
        policy.remove(key, evicted=True)
        order.append(key)
    return order


def test_a_chain_is_evicted_from_its_end() -> None:
    policy = make_policy("lru", 100, leaf_first=True)
    chain(policy, "a", "b", "c")
    assert evict_all(policy) == ["c", "b", "a"]


def test_a_shared_beginning_stays_as_long_as_any_chain_needs_it() -> None:
    policy = make_policy("lru", 100, leaf_first=True)
    chain(policy, "a", "b")
    policy.insert("x", 1, "a")
    policy.touch("b")
    assert evict_all(policy) == ["x", "b", "a"]


def test_the_coldest_leaf_goes_first_among_chains() -> None:
    policy = make_policy("lru", 100, leaf_first=True)
    chain(policy, "a1", "a2")
    chain(policy, "b1", "b2")
    policy.touch("a2")
    policy.touch("a1")
    assert policy.victim(anything) == "b2"


def test_first_in_first_out_ignores_use_and_least_frequently_used_counts_it() -> None:
    for name, expected in (("fifo", "a"), ("lfu", "b")):
        policy = make_policy(name, 100, leaf_first=True)
        policy.insert("a", 1)
        policy.insert("b", 1)
        policy.touch("a")
        assert policy.victim(anything) == expected


def test_a_parent_may_follow_its_chosen_child_and_is_held_again_when_the_child_is_used() -> None:
    policy = make_policy("lru", 100, leaf_first=True)
    chain(policy, "a", "b")
    assert policy.victim(anything) == "b"
    policy.touch("b")
    assert policy.victim(anything) == "b"
    assert policy.victim(anything) == "a"


def test_a_parent_that_comes_after_its_child_is_held_by_it() -> None:
    policy = make_policy("lru", 100, leaf_first=True)
    policy.insert("b", 1, "a")
    policy.insert("a", 1, None)
    policy.touch("b")
    assert policy.victim(anything) == "b"


def test_what_may_not_go_is_passed_over_and_found_later() -> None:
    policy = make_policy("lru", 100, leaf_first=True)
    chain(policy, "a", "b")
    policy.insert("c", 1)
    assert policy.victim(lambda key: key != "b") == "c"
    assert policy.victim(anything) == "b"


def test_without_eviction_nothing_is_named() -> None:
    policy = make_policy("none", 100, leaf_first=True)
    policy.insert("a", 1)
    assert policy.victim(anything) is None
    assert len(policy) == 1


@pytest.mark.parametrize("name", [name for name in LEAF_FIRST_NAMES if name != "none"])
@settings(deadline=None)
@given(data=st.data())
def test_no_victim_ever_has_a_child_that_stays(name: Any, data: Any) -> None:
    """Against an oracle that knows the tree: random trees, uses and removals."""
    policy = make_policy(name, 100, leaf_first=True)
    parents: dict[str, str | None] = {}
    chosen: set[str] = set()
    for step in range(data.draw(st.integers(1, 60))):
        action = data.draw(st.sampled_from(["insert", "insert", "touch", "victim", "remove"]))
        if action == "insert":
            parent = data.draw(st.sampled_from([None, *parents]))
            parents[f"k{step}"] = parent
            policy.insert(f"k{step}", 1, parent)
        elif action == "touch" and parents:
            key = data.draw(st.sampled_from(sorted(parents)))
            policy.touch(key)
            chosen.discard(key)
        elif action == "remove" and parents:
            key = data.draw(st.sampled_from(sorted(parents)))
            policy.remove(key, evicted=False)
            del parents[key]
            chosen.discard(key)
        elif action == "victim":
            staying = {parent for key, parent in parents.items() if key not in chosen}
            leaves = {key for key in parents if key not in chosen and key not in staying}
            key = policy.victim(anything)
            assert (key is None) == (not leaves)
            assert key is None or key in leaves
            if key is not None:
                chosen.add(key)
    assert len(policy) == len(parents)
