"""Eviction policies: one file each; a new one adds its line to the table below."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

_POLICIES = {
    "lru": "kvspill.cache.policies.lru:LruPolicy",
    "lfu": "kvspill.cache.policies.lfu:LfuPolicy",
    "fifo": "kvspill.cache.policies.fifo:FifoPolicy",
    "s3-fifo": "kvspill.cache.policies.s3fifo:S3FifoPolicy",
    "none": "kvspill.cache.policies.none:NonePolicy",
}
_LEAF_FIRST_RANKS = {"lru": "LeafFirstLru", "lfu": "LeafFirstLfu", "fifo": "LeafFirstFifo"}
POLICY_NAMES = tuple(_POLICIES)
LEAF_FIRST_NAMES = (*_LEAF_FIRST_RANKS, "none")
"""Policies that can keep a block as long as one that continues it is there."""


class EvictionPolicy(Protocol):
    """The order in which one tier gives up its entries."""

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:
        """A new entry is resident; as a block it continues its parent."""
        ...

    def touch(self, key: str) -> None:
        """A resident entry was used."""
        ...

    def remove(self, key: str, evicted: bool) -> None:
        """A resident entry is gone: evicted by this policy's choice, or for another reason."""
        ...

    def victim(self, evictable: Callable[[str], bool]) -> str | None:
        """The coldest resident entry that may be evicted, or None. It stays until removed."""
        ...

    def __len__(self) -> int: ...


def make_policy(name: str, capacity_bytes: int) -> EvictionPolicy:
    """A fresh policy of that name for a tier of that size."""
    module, _, attribute = _POLICIES[name].partition(":")
    policy: EvictionPolicy = getattr(import_module(module), attribute)(capacity_bytes)
    return policy


def make_leaf_first(name: str, capacity_bytes: int) -> EvictionPolicy:
    """The policy of that name over the leaves of the blocks' tree: no block goes before its children."""
    if name == "none":
        return make_policy(name, capacity_bytes)
    from kvspill.cache.policies import leaf_first

    policy: EvictionPolicy = getattr(leaf_first, _LEAF_FIRST_RANKS[name])(capacity_bytes)
    return policy
