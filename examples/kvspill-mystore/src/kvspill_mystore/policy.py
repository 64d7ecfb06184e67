"""The eviction policy mru: the entry that was used most recently goes first."""

from collections import OrderedDict
from collections.abc import Callable

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.plugins import Plugin


class MruPolicy:
    """Right for loops over more than fits: what comes round last is kept."""

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:
        del nbytes, parent
        self._order[key] = None

    def touch(self, key: str) -> None:
        self._order.move_to_end(key)

    def remove(self, key: str, evicted: bool) -> None:
        del evicted
        del self._order[key]

    def victim(self, evictable: Callable[[str], bool]) -> str | None:
        return next((key for key in reversed(self._order) if evictable(key)), None)

    def __len__(self) -> int:
        return len(self._order)


def make(_context: PolicyContext) -> EvictionPolicy:
    return MruPolicy()


PLUGIN = Plugin("mru", "gives up what was used most recently", make)
