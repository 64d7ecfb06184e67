"""Files with threads of their own for writes, as engines that keep loads and stores apart."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kvspill.records import NS_PER_SEC, Completion
from kvspill.storage.base import WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.filejobs import WriteJob
from kvspill.storage.files import FilesBackend, FilesOptions
from kvspill.storage.lanes import Lanes
from kvspill.storage.layouts import Layout

_JOIN_NS = 2 * NS_PER_SEC


class SplitFilesBackend(FilesBackend):
    """A file per object; --io-threads read, and where asked others write."""

    def __init__(
        self,
        roots: Sequence[Path],
        options: FilesOptions,
        layout: Layout,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
    ):
        plane = plane or DataPlane(options.io_size, options.io_threads + layout.write_threads)
        super().__init__(roots, options, clock_ns, plane)
        self._layout = layout
        split = layout.write_threads > 0
        self._stores = Lanes("kvspill-store", layout.write_threads, clock_ns) if split else self._lanes

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        return await self._stores.submit([WriteJob(*self._place(item.ref), item.source) for item in batch])

    def cancel(self) -> None:
        super().cancel()
        self._stores.cancel()

    def stuck(self, now_ns: int, older_than_ns: int = NS_PER_SEC) -> list[int]:
        ages = super().stuck(now_ns, older_than_ns)
        if self._stores is not self._lanes:
            ages += self._stores.stuck(now_ns, older_than_ns)
        return sorted(ages, reverse=True)

    def close_now(self) -> None:
        if self._stores is not self._lanes:
            # Before the directories go: what is still being written must not be made anew.
            self._stores.join(self._clock_ns() + _JOIN_NS)
        super().close_now()
