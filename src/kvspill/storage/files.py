"""The files backend: one file per object in a private run directory, by direct I/O on threads of its own."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.errors import KvspillError, UsageError
from kvspill.records import MIB, NS_PER_SEC, Completion
from kvspill.storage.base import (
    Backend,
    Capabilities,
    Note,
    ObjectRef,
    Progress,
    WriteItem,
    left_behind,
)
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import Access, probe
from kvspill.storage.filejobs import DeleteJob, ReadJob, Site, Tally, WriteJob
from kvspill.storage.lanes import Lanes, on_thread
from kvspill.storage.rundir import RunDir, clean
from kvspill.storage.stamps import BLOCK_BYTES, Identity, Verify, identify

_FILL_AHEAD_NS = NS_PER_SEC // 5
_JOIN_NS = 2 * NS_PER_SEC
_UNLINK_THREADS = 4


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """How the files backend does its I/O."""

    io_size: int = 4 * MIB
    io_threads: int = 32
    direct: str = "auto"
    """auto, on or off."""
    sync: str = "none"
    """none, or data: fdatasync before an object becomes readable."""
    verify: str = "stamp"
    """off, stamp or full (E10)."""
    io_engine: str = "threads"
    """threads, or io_uring, which falls back to threads where it cannot be used."""

    def check(self) -> None:
        """Refuse what cannot work, naming the flag."""
        if self.io_size < BLOCK_BYTES or self.io_size % BLOCK_BYTES:
            raise UsageError(f"--io-size {self.io_size}: must be a positive multiple of {BLOCK_BYTES} bytes")
        if self.io_threads < 1:
            raise UsageError(f"--io-threads {self.io_threads}: must be at least 1")
        if self.io_engine not in ("threads", "io_uring"):
            raise UsageError(f"--io-engine {self.io_engine}: must be threads or io_uring")


class FilesBackend(Backend):
    """Objects spread over the run directories of one or more roots by a stable hash."""

    _levels: tuple[int, ...] = (2,)
    """Letters of the names of nested directories that files lie in."""

    def __init__(
        self,
        roots: Sequence[Path],
        options: FilesOptions,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
    ):
        options.check()
        if not roots:
            raise UsageError("no cache directory: name one with --cache-dir")
        self._roots = list(roots)
        self._options = options
        self._clock_ns = clock_ns
        self._plane = plane or DataPlane(options.io_size, options.io_threads)
        if self._plane.io_size != options.io_size or self._plane.leases_max < options.io_threads:
            raise ValueError(f"the given plane does not fit {options.io_threads} x {options.io_size} bytes")
        self._verify = Verify[options.verify.upper()]
        self._lanes = Lanes("kvspill-io", options.io_threads, clock_ns)
        self._unlinks = Lanes("kvspill-unlink", _UNLINK_THREADS, clock_ns)
        self._runs: list[RunDir] = []
        self._sites: list[Site] = []
        self._alignment = BLOCK_BYTES
        self._engine = "threads"
        self._closing = threading.Lock()
        self._closed = False
        self.tally = Tally()
        """What was really done to the files: opened directly or not, pages dropped from the cache."""
        self.engine_fallback: tuple[str, str] | None = None
        """After prepare: why threads are used although io_uring was asked for, and the remedy."""
        self.left_behind: list[str] = []
        """After close: what in the run directories was not the run's and therefore stays."""

    @property
    def capabilities(self) -> Capabilities:
        accesses = [site.access for site in self._sites]
        return Capabilities(
            name="files",
            modelled=False,
            direct_io=bool(accesses) and all(access.direct for access in accesses),
            verifies=self._verify is not Verify.OFF,
            description="; ".join(
                [*sorted({access.description for access in accesses}), *self._about_engine()]
            ),
            files_opened_direct=self.tally.opened_direct,
            files_opened_buffered=self.tally.opened_buffered,
        )

    def _about_engine(self) -> list[str]:
        if self.engine_fallback is not None:
            return [f"threads instead of io_uring: {self.engine_fallback[0]}"]
        return ["io_uring"] if self._engine == "io_uring" else []

    def notes(self) -> list[Note]:
        notes = left_behind(self.left_behind)
        if self.engine_fallback is not None:
            reason, remedy = self.engine_fallback
            message = f"I/O goes by threads instead of --io-engine io_uring: {reason}."
            notes.append(Note("io_engine", message, f"{remedy[0].upper()}{remedy[1:]}."))
        return notes

    @property
    def run_paths(self) -> list[Path]:
        """The run directories, for whoever watches the devices behind them."""
        return [run.path for run in self._runs]

    def stored_bytes(self, nbytes: int) -> int:
        return -(-nbytes // self._alignment) * self._alignment

    async def prepare(self, progress: Progress) -> None:
        """Remove what killed runs left, make the run directories, find out about direct I/O."""
        progress("cache directory", 0, len(self._roots))
        try:
            await on_thread("kvspill-prepare", self._prepare)
        except KvspillError:
            await self.close()
            raise
        progress("cache directory", len(self._roots), len(self._roots))

    def _prepare(self) -> None:
        for root in self._roots:
            clean(root)
            with self._closing:
                if self._closed:
                    # The run was interrupted before it began: what is made now nobody would remove.
                    return
                run = RunDir(root)
                self._runs.append(run)
            access = probe(run, self._options.direct)
            self._check_alignment(root, access)
            self._sites.append(
                Site(
                    *(run, access, self._options.sync == "data", self._verify, self._plane, self.tally),
                    levels=self._levels,
                )
            )
        self._alignment = max(site.access.alignment for site in self._sites)
        if self._options.io_engine == "io_uring":
            self._take_ring()
        self._lanes.start()
        self._unlinks.start()
        self._plane.fill_some(self._clock_ns() + _FILL_AHEAD_NS, self._clock_ns)

    def _take_ring(self) -> None:
        """Put the ring in the threads' place, or note why not."""
        from kvspill.storage.ring import RingError
        from kvspill.storage.uring import RingLanes

        try:
            if type(self) is not FilesBackend:
                raise RingError("this layout moves its data on threads", "leave --engine out")
            if not all(site.access.direct for site in self._sites):
                raise RingError(
                    "O_DIRECT is not in use, and without it a ring is but threads in the kernel",
                    "name a directory where --direct on works",
                )
            ring = RingLanes("kvspill-io", self._options.io_threads, self._clock_ns, self._plane)
        except RingError as error:
            self.engine_fallback = error.reason, error.remedy
            return
        with self._closing:
            if self._closed:
                ring.join(self._clock_ns())
                return
            threads, self._lanes, self._engine = self._lanes, ring, "io_uring"
        if threads.stopping:
            ring.cancel()

    def _check_alignment(self, root: Path, access: Access) -> None:
        if self._options.io_size % access.alignment:
            raise UsageError(
                f"--io-size {self._options.io_size}: {root} needs a multiple of {access.alignment} bytes"
            )

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._lanes.submit([ReadJob(*self._place(ref)) for ref in batch])

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        return await self._lanes.submit([WriteJob(*self._place(item.ref), item.source) for item in batch])

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._unlinks.submit([DeleteJob(*self._place(ref)[:2]) for ref in batch])

    def _place(self, ref: ObjectRef) -> tuple[Site, Identity, int, int]:
        identity = identify(ref.key, ref.generation, self._plane.salt)
        site = self._sites[identity.key_hash % len(self._sites)]
        return site, identity, ref.nbytes, self.stored_bytes(ref.nbytes)

    def cancel(self) -> None:
        """Stop what is queued and under way: it completes with the error "cancelled"."""
        self._lanes.cancel()
        self._unlinks.cancel()

    def stuck(self, now_ns: int, older_than_ns: int = NS_PER_SEC) -> list[int]:
        """Ages of system calls that threads have been inside for at least older_than_ns."""
        return sorted(
            self._lanes.stuck(now_ns, older_than_ns) + self._unlinks.stuck(now_ns, older_than_ns),
            reverse=True,
        )

    async def close(self) -> None:
        await on_thread("kvspill-close", self.close_now)

    def close_now(self) -> None:
        """Close without a loop, for a signal or exception path. Safe to call twice and never waits long."""
        with self._closing:
            self._closed = True
            runs, self._runs = self._runs, []
            self.cancel()
            until_ns = self._clock_ns() + _JOIN_NS
            stuck = sum(lanes.join(until_ns) for lanes in (self._lanes, self._unlinks))
            for run in runs:
                # A stuck thread may wake up later: its descriptor must not have become another file's.
                self.left_behind += [str(run.path / name) for name in run.remove(keep_fds=stuck > 0)]
