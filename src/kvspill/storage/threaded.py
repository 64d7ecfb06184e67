"""A backend whose objects are moved by threads of its own, a job for each object."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence

from kvspill.errors import KvspillError
from kvspill.records import NS_PER_SEC, Completion
from kvspill.storage.base import Backend, ObjectRef, Progress, Source, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.jobs import Job
from kvspill.storage.lanes import on_thread, on_thread_or_here
from kvspill.storage.mover import Mover
from kvspill.storage.stamps import Identity, block_padded, identify

JOIN_NS = 2 * NS_PER_SEC
FILL_AHEAD_NS = 5 * NS_PER_SEC
"""Memory is made ready for so long at most: what is left is found while the load runs, and takes its time."""


class ThreadedBackend(Backend):
    """Subclasses say by which job an object is read, written and removed."""

    load_jobs = store_jobs = "piece"
    """What a thread takes up at a time, as Lanes.submit has it."""

    def __init__(self, mover: Mover, plane: DataPlane, clock_ns: Callable[[], int], places: tuple[str, int]):
        """places: what they are called while they are prepared, and how many there are."""
        self.plane = plane
        self.clock_ns = clock_ns
        self._mover = mover
        self._places = places
        self._closing = threading.Lock()
        self._closed = False

    def stored_bytes(self, nbytes: int) -> int:
        return block_padded(nbytes)

    @abstractmethod
    def read_job(self, ref: ObjectRef) -> Job: ...

    @abstractmethod
    def write_job(self, ref: ObjectRef, source: Source | None) -> Job: ...

    @abstractmethod
    def delete_job(self, ref: ObjectRef) -> Job: ...

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._mover.loads.carry([self.read_job(ref) for ref in batch], self.load_jobs)

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        jobs = [self.write_job(ref, source) for ref, source in batch]
        return await self._mover.stores.carry(jobs, self.store_jobs)

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._mover.removals.carry([self.delete_job(ref) for ref in batch])

    def identify(self, ref: ObjectRef) -> Identity:
        return identify(ref.key, ref.generation, self.plane.salt)

    async def prepare(self, progress: Progress) -> None:
        what, count = self._places
        progress(what, 0, count)
        try:
            await on_thread("kvspill-prepare", self._prepare)
        except KvspillError:
            await self.close()
            raise
        progress(what, count, count)

    @abstractmethod
    def _prepare(self) -> None:
        """Get ready, on a thread; ends at once where _closed is found set under the lock _closing."""

    def _start(self, landing_bytes: int = 0) -> None:
        """Start the threads, and make the data that is written and the memory that reads land in.

        The first touch of memory takes longer than a read: no operation of the load may wait for it.
        """
        until_ns = self.clock_ns() + FILL_AHEAD_NS

        def goes_on() -> bool:
            return not self._closed and self.clock_ns() < until_ns

        self._mover.start()
        self.plane.fill_some(goes_on)
        self._mover.loads.find_memory(landing_bytes, goes_on)

    def cancel(self) -> None:
        self._mover.cancel()

    def stuck(self, now_ns: int, older_than_ns: int = NS_PER_SEC) -> list[int]:
        return self._mover.stuck(now_ns, older_than_ns)

    async def close(self) -> None:
        await on_thread_or_here("kvspill-close", self.close_now)
