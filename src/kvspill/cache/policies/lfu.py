"""Least frequently used; among equals, least recently used."""

from collections import OrderedDict
from collections.abc import Callable

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.policies.leaf_first import LeafFirst, Ranks
from kvspill.plugins import LEAF_FIRST, Plugin

_RANKS = Ranks(of_new=lambda now: (1, now), after_use=lambda rank, now: (rank[0] + 1, now))


class LfuPolicy:
    """Keeps entries in one LRU list per use count and evicts from the lowest count."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._by_uses: dict[int, OrderedDict[str, None]] = {}

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:  # noqa: ARG002 - order alone counts
        self._place(key, 1)

    def touch(self, key: str) -> None:
        uses = self._uses[key]
        self._take_out(key)
        self._place(key, uses + 1)

    def remove(self, key: str, evicted: bool) -> None:  # noqa: ARG002 - the past does not matter here
        self._take_out(key)

    def victim(self, evictable: Callable[[str], bool]) -> str | None:
        # What is new has one use, so that there is rarely a reason to put all counts in order.
        key = next(filter(evictable, self._by_uses.get(1, ())), None)
        if key is not None:
            return key
        for uses in sorted(self._by_uses):
            key = next(filter(evictable, self._by_uses[uses]), None)
            if key is not None:
                return key
        return None

    def __len__(self) -> int:
        return len(self._uses)

    def _place(self, key: str, uses: int) -> None:
        self._uses[key] = uses
        same = self._by_uses.get(uses)
        if same is None:
            same = self._by_uses[uses] = OrderedDict()
        same[key] = None

    def _take_out(self, key: str) -> None:
        uses = self._uses.pop(key)
        same = self._by_uses[uses]
        del same[key]
        if not same:
            del self._by_uses[uses]


def make(context: PolicyContext) -> EvictionPolicy:
    return LeafFirst(_RANKS) if context.leaf_first else LfuPolicy()


PLUGIN = Plugin(
    name="lfu",
    help="gives up what was used least often; among equals, longest ago",
    make=make,
    can=frozenset({LEAF_FIRST}),
)
