"""First in, first out."""

from collections import OrderedDict
from collections.abc import Callable

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.policies.leaf_first import LeafFirst, Ranks
from kvspill.plugins import LEAF_FIRST, Plugin

_RANKS = Ranks(of_new=lambda now: (now, 0), after_use=lambda rank, _now: rank)


class FifoPolicy:
    """Evicts what came first, however often it is used."""

    def __init__(self) -> None:
        # A plain dict is slow to find its first key once many before it are gone.
        self._order: OrderedDict[str, None] = OrderedDict()

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:  # noqa: ARG002 - order alone counts
        self._order[key] = None

    def touch(self, key: str) -> None:
        """Use does not change the order."""

    def remove(self, key: str, evicted: bool) -> None:  # noqa: ARG002 - the past does not matter here
        del self._order[key]

    def victim(self, evictable: Callable[[str], bool]) -> str | None:
        return next(filter(evictable, self._order), None)

    def __len__(self) -> int:
        return len(self._order)


def make(context: PolicyContext) -> EvictionPolicy:
    return LeafFirst(_RANKS) if context.leaf_first else FifoPolicy()


PLUGIN = Plugin(
    name="fifo",
    help="gives up what came first, however often it is used",
    make=make,
    can=frozenset({LEAF_FIRST}),
)
