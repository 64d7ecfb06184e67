"""The files backend: objects in private run directories, by direct I/O on threads or rings of its own."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvspill.errors import UsageError
from kvspill.records import MIB, NS_PER_SEC
from kvspill.storage.base import (
    BackendContext,
    Capabilities,
    DirectError,
    Landing,
    Note,
    ObjectRef,
    Source,
    left_behind,
)
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import Access, probe
from kvspill.storage.files.jobs import DeleteJob, ReadJob, WriteJob
from kvspill.storage.files.layouts import PLACES
from kvspill.storage.files.place import Shape
from kvspill.storage.files.reach import THROUGH_HOST, Reach, trial_file
from kvspill.storage.files.ring import RingError
from kvspill.storage.files.site import Site, Tally
from kvspill.storage.jobs import Job
from kvspill.storage.mover import by_threads
from kvspill.storage.neighbours import check_claim, claim
from kvspill.storage.rundir import RunDir, clean, usage_errors
from kvspill.storage.stamps import BLOCK_BYTES, Verify
from kvspill.storage.threaded import JOIN_NS, ThreadedBackend

_KEPT = "The page cache takes part: writes end in memory, and reads may be served from it."
_KEPT_REMEDY = "Give --page-cache drop or --direct on to measure the device itself."


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """Where the files backend puts objects and how it does its I/O."""

    io_size: int = 4 * MIB
    io_threads: int = 32
    write_threads: int = 0
    """Threads for writes alone; 0 where reads and writes share them."""
    direct: str = "auto"
    """auto, on or off."""
    sync: str = "none"
    """none, or data: fdatasync before an object becomes readable."""
    verify: str = "stamp"
    """off, stamp or full (E10)."""
    io_engine: str = "threads"
    """threads, or io_uring, which falls back to threads where it cannot be used."""
    layout: str = "files"
    """files, flat, tree, slots or buckets."""
    load_jobs: str = "piece"
    """What a thread takes up at a time: piece, block, or request, all blocks of a batch in turn."""
    store_jobs: str = "piece"
    preallocate: str = "on"
    rename: str = "on"
    """on: a file has a temporary name until it is whole."""
    page_cache: str = "drop"
    """What becomes of the pages of buffered I/O: drop, or keep."""
    unit_bytes: int = 0
    """The usual object, which a slot holds."""
    capacity_bytes: int = 0
    """What all slots take together."""
    claimed_bytes: int = 0
    """What the run can come to hold at most, for other runs to know."""
    gpu_direct: str = "off"
    """auto, on or off: whether a GPU that reads end on reads and writes the files itself."""

    @classmethod
    def of(cls, context: BackendContext, names: Sequence[str]) -> "FilesOptions":
        """As the run has them: the sizes of its tier, and the settings of these names."""
        return cls(
            **{name: context.settings[name] for name in names},
            unit_bytes=context.unit_bytes,
            capacity_bytes=context.limit_bytes,
            claimed_bytes=context.limit_bytes if context.claimed_bytes is None else context.claimed_bytes,
        )

    def check(self) -> None:
        """Refuse what cannot work, naming the flag."""
        if self.io_size < BLOCK_BYTES or self.io_size % BLOCK_BYTES:
            raise UsageError(f"--io-size {self.io_size}: must be a positive multiple of {BLOCK_BYTES} bytes")
        if self.io_threads < 1:
            raise UsageError(f"--io-threads {self.io_threads}: must be at least 1")
        if self.io_engine not in ("threads", "io_uring"):
            raise UsageError(f"--io-engine {self.io_engine}: must be threads or io_uring")
        if self.layout not in PLACES:
            raise UsageError(f"--layout {self.layout}: must be one of {', '.join(PLACES)}")

    @property
    def shape(self) -> Shape:
        return Shape(
            self.io_size,
            unit_bytes=self.unit_bytes,
            capacity_bytes=self.capacity_bytes,
            renames=self.rename == "on",
        )


class FilesBackend(ThreadedBackend):
    """Objects spread over the run directories of one or more roots by a stable hash."""

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
        leases = max(options.io_threads, options.write_threads)
        plane = plane or DataPlane(options.io_size, leases)
        mover = by_threads(options.io_threads, options.write_threads, clock_ns)
        super().__init__(mover, plane, clock_ns, ("cache directory", len(roots)))
        self.load_jobs, self.store_jobs = options.load_jobs, options.store_jobs
        self._roots = list(roots)
        self._options = options
        if plane.io_size != options.io_size or plane.leases_max < leases:
            raise ValueError(f"the given plane does not fit {leases} x {options.io_size} bytes")
        self._verify = Verify[options.verify.upper()]
        self.place = PLACES[options.layout]((), options.shape)
        """Where objects lie; complete after prepare."""
        self._runs: list[RunDir] = []
        self._preparing = threading.Lock()
        self._engine = "threads"
        self._landing: Landing | None = None
        self.to_gpu: Reach | None = None
        """After prepare: how what is read gets to the device that it ends on, where it does."""
        self.tally = Tally()
        """What was really done to the files: opened directly or not, pages dropped from the cache."""
        self.engine_fallback: tuple[str, str] | None = None
        """After prepare: why threads are used although io_uring was asked for, and the remedy."""
        self.left_behind: list[str] = []
        """After close: what in the run directories was not the run's and therefore stays."""

    @property
    def capabilities(self) -> Capabilities:
        accesses = [site.access for site in self.place.sites]
        about = [self.place.about] if self.place.about else []
        about += sorted({access.description for access in accesses})
        if self.engine_fallback is not None:
            about.append(f"threads instead of io_uring: {self.engine_fallback[0]}")
        elif self._engine == "io_uring":
            about.append("io_uring")
        if self.to_gpu is not None:
            about.append(self.to_gpu.sentence)
        return Capabilities(
            name=self.place.name,
            modelled=False,
            direct_io=bool(accesses) and all(access.direct for access in accesses),
            verifies=self._verify is not Verify.OFF,
            description="; ".join(about),
            files_opened_direct=self.tally.opened_direct,
            files_opened_buffered=self.tally.opened_buffered,
        )

    def facts(self) -> Mapping[str, int | float | str]:
        reach: dict[str, int | float | str]
        tally = self.tally
        reach = {} if self.to_gpu is None else {"gpu_direct": self.to_gpu.mode}
        return reach | {
            "pages_dropped": tally.pages_dropped,
            "pages_left": tally.pages_left,
            "resumed_calls": tally.resumed_calls,
        }

    def notes(self) -> list[Note]:
        notes = left_behind(self.left_behind)
        if self.engine_fallback is not None:
            reason, remedy = self.engine_fallback
            message = f"I/O goes by threads instead of --io-engine io_uring: {reason}."
            notes.append(Note("io_engine", message, f"{remedy[0].upper()}{remedy[1:]}."))
        if any(site.access.keeps_pages for site in self.place.sites):
            notes.append(Note("page_cache_kept", _KEPT, _KEPT_REMEDY))
        if self.to_gpu is not None:
            notes += self.to_gpu.notes()
        return notes

    def stored_bytes(self, nbytes: int) -> int:
        return self.place.stored_bytes(nbytes)

    def deliver_to(self, landing: Landing) -> None:
        self._landing = landing

    def _prepare(self) -> None:
        with self._preparing:
            self._prepare_files()

    def _prepare_files(self) -> None:
        """Remove what killed runs left, make the run directories, find out about direct I/O."""
        sites: list[Site] = []
        for root in self._roots:
            with usage_errors(root):
                site = self._prepare_site(root)
            if site is None:
                return
            sites.append(site)
        if self._closed:
            return
        alignment = max(site.access.alignment for site in sites)
        shape = replace(self._options.shape, alignment=alignment)
        self.place = PLACES[self._options.layout](sites, shape)
        self.place.prepare()
        if self._landing is not None:
            self.to_gpu = self._reach(self._landing)
        if self._options.io_engine == "io_uring":
            self._take_ring()
        if self._landing is not None:
            # A ring has buffers of its own and one thread that sends them on.
            lanes = 1 if self._engine == "io_uring" else self._options.io_threads
            self._landing.reserve(lanes, self.place.piece_bytes)
        self._start(self.place.piece_bytes if self._landing is None else 0)

    def _prepare_site(self, root: Path) -> Site | None:
        """A run directory below one root; None where the run is over already."""
        clean(root)
        with self._closing:
            if self._closed:
                # The run was interrupted before it began: what is made now nobody would remove.
                return None
            run = RunDir(root)
            self._runs.append(run)
        share_bytes = self._options.claimed_bytes // len(self._roots)
        claim(run, share_bytes)
        check_claim(run, share_bytes)
        access = probe(run, self._options.direct, keep_pages=self._options.page_cache == "keep")
        if self._options.preallocate == "off":
            access = replace(access, preallocates=False)
        self._check_alignment(root, access)
        sync = self._options.sync == "data"
        return Site(run, access, sync, self._verify, self.plane, self.tally, self._landing)

    def _reach(self, landing: Landing) -> Reach:
        """How bytes get from the files to the device's memory and back."""
        wanted, mode = self._options.gpu_direct, ""
        if wanted == "off":
            return Reach(wanted, THROUGH_HOST)
        try:
            for site in self.place.sites:
                with trial_file(site.run, site.access) as fd:
                    mode = landing.go_direct(wanted, fd)
        except DirectError as error:
            return Reach(wanted, THROUGH_HOST, str(error))
        return Reach(wanted, mode)

    def _take_ring(self) -> None:
        """Put rings in the threads' place, or note why not."""
        from kvspill.storage.files.uring import by_ring

        options = self._options
        try:
            if not all(site.access.direct for site in self.place.sites):
                raise RingError(
                    "O_DIRECT is not in use, and without it a ring only moves the threads into the kernel",
                    "name a directory where --direct on works",
                )
            if self._landing is not None and self._landing.direct:
                raise RingError("the GPU reads and writes the files itself", "use --gpu-direct off")
            sizes = options.io_threads, options.write_threads
            ring = by_ring(self._mover, *sizes, self.clock_ns, self.plane)
        except RingError as error:
            self.engine_fallback = error.reason, error.remedy
            return
        with self._closing:
            if self._closed:
                ring.join(self.clock_ns())
                return
            threads, self._mover, self._engine = self._mover, ring, "io_uring"
        if threads.loads.stopping:
            ring.cancel()

    def _check_alignment(self, root: Path, access: Access) -> None:
        if self._options.io_size % access.alignment:
            raise UsageError(
                f"--io-size {self._options.io_size}: {root} needs a multiple of {access.alignment} bytes"
            )

    def read_job(self, ref: ObjectRef) -> Job:
        return ReadJob(self.place, self.identify(ref), ref.nbytes)

    def write_job(self, ref: ObjectRef, source: Source | None) -> Job:
        return WriteJob(self.place, self.identify(ref), ref.nbytes, source)

    def delete_job(self, ref: ObjectRef) -> Job:
        return DeleteJob(self.place, self.identify(ref))

    def close_now(self) -> None:
        until_ns = self.clock_ns() + JOIN_NS
        with self._closing:
            self._closed = True
        # What is still being prepared would make a file in a directory while it is removed.
        ready = self._preparing.acquire(timeout=JOIN_NS / NS_PER_SEC)
        try:
            with self._closing:
                stuck = self._mover.join(until_ns) > 0 or not ready
                self._close_files(stuck)
        finally:
            if ready:
                self._preparing.release()

    def _close_files(self, stuck: bool) -> None:
        runs, self._runs = self._runs, []
        try:
            # A stuck thread may wake up later: its descriptor must not have become another file's.
            if not stuck:
                if self._landing is not None:
                    self._landing.close_files()
                self.place.close()
        finally:
            for run in runs:
                self.left_behind += _removed(run, keep_fds=stuck)


def _removed(run: RunDir, keep_fds: bool) -> list[str]:
    """Remove a run directory; returns what of it stays. Whatever goes wrong, the others are removed too."""
    try:
        return [str(run.path / name) for name in run.remove(keep_fds)]
    except Exception as error:
        return [f"{run.path} ({error})"]
