"""A bounded memory of how often keys were seen, for rules such as "to disk only from the second use"."""

from collections import OrderedDict


class SeenKeys:
    """Counts per key; beyond its limit the key that was seen longest ago is forgotten."""

    def __init__(self, limit: int):
        self._limit = limit
        self._counts: OrderedDict[str, int] = OrderedDict()

    def note(self, key: str) -> int:
        """See the key once more; returns how often it has been seen, this time included."""
        count = self._counts.pop(key, 0) + 1
        self._counts[key] = count
        if len(self._counts) > self._limit:
            self._counts.popitem(last=False)
        return count

    def __len__(self) -> int:
        return len(self._counts)
