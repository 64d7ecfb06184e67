"""Least recently used."""

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.policies.fifo import FifoPolicy
from kvspill.cache.policies.leaf_first import LeafFirst, Ranks
from kvspill.plugins import LEAF_FIRST, Plugin

_RANKS = Ranks(of_new=lambda now: (now, 0), after_use=lambda _rank, now: (now, 0))


class LruPolicy(FifoPolicy):
    """Evicts what was used longest ago: use puts an entry at the end of the line."""

    def touch(self, key: str) -> None:
        self._order.move_to_end(key)


def make(context: PolicyContext) -> EvictionPolicy:
    return LeafFirst(_RANKS) if context.leaf_first else LruPolicy()


PLUGIN = Plugin(
    name="lru",
    help="gives up what was used longest ago",
    make=make,
    can=frozenset({LEAF_FIRST}),
)
