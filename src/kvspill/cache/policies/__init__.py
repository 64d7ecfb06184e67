"""Eviction policies. One file each with its PLUGIN; other packages add theirs by entry point."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol


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


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What the `make` of a policy is given."""

    capacity_bytes: int
    """What entries may take of the tier."""
    leaf_first: bool = False
    """Keep a block as long as one that continues it is there; asked only of policies that can."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The policy's own options by name."""
