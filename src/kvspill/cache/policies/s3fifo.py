"""S3-FIFO: a small probation queue, a main queue and a memory of what was evicted lately."""

from collections import OrderedDict
from collections.abc import Callable

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.plugins import Plugin

SMALL_SHARE = 0.1
_USES_MAX = 3


class S3FifoPolicy:
    """New entries prove themselves in a tenth of the space; what returns soon goes straight to main."""

    def __init__(self, capacity_bytes: int):
        self._small_limit_bytes = int(capacity_bytes * SMALL_SHARE)
        self._small: OrderedDict[str, int] = OrderedDict()
        self._main: OrderedDict[str, int] = OrderedDict()
        self._ghost: OrderedDict[str, None] = OrderedDict()
        self._uses: dict[str, int] = {}
        self._small_bytes = 0

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:  # noqa: ARG002 - no tree here
        self._uses[key] = 0
        if key in self._ghost:
            del self._ghost[key]
            self._main[key] = nbytes
        else:
            self._small[key] = nbytes
            self._small_bytes += nbytes

    def touch(self, key: str) -> None:
        self._uses[key] = min(_USES_MAX, self._uses[key] + 1)

    def remove(self, key: str, evicted: bool) -> None:
        del self._uses[key]
        if key in self._main:
            del self._main[key]
            return
        self._small_bytes -= self._small.pop(key)
        if evicted:
            self._ghost[key] = None
            # The ghost remembers about as many keys as the tier holds.
            while len(self._ghost) > max(16, len(self._uses)):
                self._ghost.popitem(last=False)

    def victim(self, evictable: Callable[[str], bool]) -> str | None:
        small_first = self._small_bytes > self._small_limit_bytes or not self._main
        key = None if small_first else self._main_victim(evictable)
        # Used entries of the small queue go over to main while it is searched, so main is last.
        return key or self._small_victim(evictable) or self._main_victim(evictable)

    def __len__(self) -> int:
        return len(self._uses)

    def _small_victim(self, evictable: Callable[[str], bool]) -> str | None:
        while (key := next(filter(evictable, self._small), None)) is not None and self._uses[key]:
            nbytes = self._small.pop(key)
            self._small_bytes -= nbytes
            self._main[key] = nbytes
            self._uses[key] = 0
        return key

    def _main_victim(self, evictable: Callable[[str], bool]) -> str | None:
        """A used entry goes back to the end with one use less."""
        while (key := next(filter(evictable, self._main), None)) is not None and self._uses[key]:
            self._uses[key] -= 1
            self._main.move_to_end(key)
        return key


def make(context: PolicyContext) -> EvictionPolicy:
    return S3FifoPolicy(context.capacity_bytes)


PLUGIN = Plugin(
    name="s3-fifo",
    help="S3-FIFO: new entries prove themselves in a tenth of the tier first",
    make=make,
)
