"""Least recently used."""

from collections import OrderedDict
from collections.abc import Callable

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.policies.leaf_first import LeafFirst, Ranks
from kvspill.plugins import LEAF_FIRST, Plugin

_RANKS = Ranks(of_new=lambda now: (now, 0), after_use=lambda _rank, now: (now, 0))


class LruPolicy:
    """Evicts what was used longest ago."""

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:  # noqa: ARG002 - order alone counts
        self._order[key] = None

    def touch(self, key: str) -> None:
        self._order.move_to_end(key)

    def remove(self, key: str, evicted: bool) -> None:  # noqa: ARG002 - the past does not matter here
        del self._order[key]

    def victim(self, evictable: Callable[[str], bool]) -> str | None:
        return next(filter(evictable, self._order), None)

    def __len__(self) -> int:
        return len(self._order)


def make(context: PolicyContext) -> EvictionPolicy:
    return LeafFirst(_RANKS) if context.leaf_first else LruPolicy()


PLUGIN = Plugin(
    name="lru",
    help="gives up what was used longest ago",
    make=make,
    can=frozenset({LEAF_FIRST}),
)
