"""Ends of stored prefixes: windows and states, one object each, which a request needs to go on from there."""

from collections.abc import Sequence

from kvspill.cache.cache import Cache
from kvspill.cache.tier import Entry, State
from kvspill.models.groups import KvSize
from kvspill.serving.chains import Chain
from kvspill.serving.write_behind import Reservation, WriteBehind


class Ends:
    """What the prefix model does for layers that keep a window or a state beside the blocks of the others.

    An end is stored where a request's blocks end, and where the resident blocks ended that it could not use:
    others may go on from there, too. A prefix can be used as far as its last resident end.
    """

    def __init__(self, kv: KvSize):
        self._kv = kv

    def usable(
        self, cache: Cache, chain: Chain, entries: Sequence[Entry]
    ) -> tuple[list[Entry], Entry | None]:
        """The resident blocks that can be used, and the end behind them."""
        if not self._kv.has_end:
            return list(entries), None
        for count in range(len(entries), 0, -1):
            end = cache.find(_key(chain, count))
            if end is not None and end.state is State.READY:
                return list(entries[:count]), end
        return [], None

    def on_its_way(self, cache: Cache, writer: WriteBehind, chain: Chain, resident: int) -> str | None:
        """The key of an end that is being written and would let more of the resident blocks be used."""
        if not self._kv.has_end:
            return None
        for count in range(resident, 0, -1):
            key = _key(chain, count)
            end = cache.find(key)
            if end is not None and end.state is State.READY:
                return None
            if end is not None or writer.pending(key):
                return key
        return None

    def announce(
        self, cache: Cache, writer: WriteBehind, chain: Chain, resident: int, used: int
    ) -> list[Reservation]:
        """Say which ends a request will store. An end whose block is not kept would be of no use."""
        if not self._kv.has_end:
            return []
        places = {len(chain.keys), resident if resident > used else 0} - {0}
        return [
            writer.reserve([key], [block], self._kv.end(chain.tokens_of(count)), 0)
            for count in sorted(places)
            for key, block in ((_key(chain, count), chain.keys[count - 1]),)
            if not (cache.find(key) is not None or writer.pending(key))
            and (cache.find(block) is not None or writer.pending(block))
        ]


def _key(chain: Chain, blocks: int) -> str:
    return f"{chain.keys[blocks - 1]}+end"
