"""Who moves objects: lanes for loads and stores, the same or apart, and for removals."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from kvspill.storage.lanes import Lanes

_UNLINK_THREADS = 4
Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Mover:
    """Loads and stores share lanes or have lanes of their own; removals always have (E3)."""

    loads: Lanes
    stores: Lanes
    removals: Lanes

    @property
    def _all(self) -> list[Lanes]:
        apart = [] if self.stores is self.loads else [self.stores]
        return [self.loads, *apart, self.removals]

    def start(self) -> None:
        for lanes in self._all:
            lanes.start()

    def cancel(self) -> None:
        for lanes in self._all:
            lanes.cancel()

    def join(self, until_ns: int) -> int:
        """Cancel and wait until then at most; returns how many threads are stuck."""
        self.cancel()
        return sum(lanes.join(until_ns) for lanes in self._all)

    def stuck(self, now_ns: int, older_than_ns: int) -> list[int]:
        ages_ns = [age_ns for lanes in self._all for age_ns in lanes.stuck(now_ns, older_than_ns)]
        return sorted(ages_ns, reverse=True)


def by_threads(threads: int, write_threads: int, clock_ns: Clock = time.monotonic_ns) -> Mover:
    """Threads for both, or others for stores where write_threads are asked for."""
    loads = Lanes("kvspill-io", threads, clock_ns)
    stores = Lanes("kvspill-store", write_threads, clock_ns) if write_threads else loads
    return Mover(loads, stores, Lanes("kvspill-unlink", _UNLINK_THREADS, clock_ns))
