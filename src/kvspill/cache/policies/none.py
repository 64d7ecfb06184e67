"""No eviction: what does not fit is not kept."""

from collections.abc import Callable

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.plugins import KEEPS_ALL, LEAF_FIRST, Plugin


class NonePolicy:
    """Never gives anything up, as engines that leave the cleaning of their disk to others."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:  # noqa: ARG002 - no order
        self._keys.add(key)

    def touch(self, key: str) -> None:
        """There is no order to change."""

    def remove(self, key: str, evicted: bool) -> None:  # noqa: ARG002 - the past does not matter here
        self._keys.remove(key)

    def victim(self, evictable: Callable[[str], bool]) -> str | None:  # noqa: ARG002 - none is
        return None

    def __len__(self) -> int:
        return len(self._keys)


def make(_context: PolicyContext) -> EvictionPolicy:
    return NonePolicy()


PLUGIN = Plugin(
    name="none",
    help="gives nothing up: a full tier takes no more",
    make=make,
    can=frozenset({KEEPS_ALL, LEAF_FIRST}),
)
