"""The object-store backend: an object per entry or block below a private prefix, on threads of its own."""

from collections.abc import Mapping

from kvspill.records import MIB
from kvspill.storage.base import (
    BackendContext,
    Capabilities,
    Note,
    ObjectRef,
    Source,
    left_behind,
)
from kvspill.storage.jobs import Job
from kvspill.storage.mover import by_threads
from kvspill.storage.objects.calls import Calls, Tally
from kvspill.storage.objects.jobs import DeleteJob, ReadJob, WriteJob
from kvspill.storage.objects.parts import PartMemory
from kvspill.storage.objects.prefix import RunPrefix, clean, refused
from kvspill.storage.objects.stores import open_stores, parse
from kvspill.storage.stamps import Identity, Verify
from kvspill.storage.threaded import JOIN_NS, ThreadedBackend


class ObjectBackend(ThreadedBackend):
    """Objects below one or more addresses of one kind, spread by a stable hash."""

    def __init__(self, context: BackendContext):
        assert context.plane is not None, "bytes are moved here: there is no virtual time"
        settings = context.settings
        mover = by_threads(settings["io_threads"], settings["write_threads"], context.clock_ns)
        super().__init__(mover, context.plane, context.clock_ns, ("object store", len(context.addresses)))
        self.verify = Verify[settings["verify"].upper()]
        self.ranges = True
        """Whether every store gives parts of an object; found out by prepare."""
        self.memory = PartMemory(context.plane)
        for address in context.addresses:
            parse(address)
        self._addresses = context.addresses
        self._options = context.options
        self._threads = settings["write_threads"] or settings["io_threads"]
        self.tally = Tally()
        """What was asked of the stores."""
        self._runs: list[RunPrefix] = []
        self._stored: set[str] = set()
        self._left: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        where = ", ".join(run.about for run in self._runs) or ", ".join(self._addresses)
        reads = f"ranges of {self.plane.io_size / MIB:g} MiB" if self.ranges else "whole objects"
        parts = f"parts of {self.memory.part_bytes / MIB:g} MiB"
        if self.memory.parts_max < self._threads:
            parts += f", at most {self.memory.parts_max} at once for lack of memory"
        return Capabilities(
            name="s3",
            modelled=False,
            verifies=self.verify is not Verify.OFF,
            description=f"objects at {where}; reads {reads}, writes {parts}",
        )

    def facts(self) -> Mapping[str, int | float | str]:
        missed = sum(run.renewal.failed for run in self._runs)
        return {**self.tally.facts(self._options), "lease_renewals_missed": missed}

    def notes(self) -> list[Note]:
        notes = left_behind(self._left, " ".join(self._addresses))
        if self._runs and not self.ranges:
            message = "The store answers no request for a part of an object, so every entry is read whole."
            notes.append(
                Note("no_ranges", message, "Compare it only with stores that are read in the same way.")
            )
        return notes

    def _prepare(self) -> None:
        """Remove what killed runs left, take a lease, find out whether parts of objects can be read."""
        for address in self._addresses:
            stores = open_stores(address, self._options)
            calls = Calls(stores, self.tally)
            with refused(stores):
                clean(stores, calls)
                with self._closing:
                    if self._closed:
                        return
                    run = RunPrefix(stores, calls)
                    self._runs.append(run)
                self.ranges = self.ranges and run.gives_ranges()
        self._start()

    def read_job(self, ref: ObjectRef) -> Job:
        return ReadJob(self, ref)

    def write_job(self, ref: ObjectRef, source: Source | None) -> Job:
        return WriteJob(self, ref, source)

    def delete_job(self, ref: ObjectRef) -> Job:
        return DeleteJob(self, ref)

    def run_of(self, identity: Identity) -> RunPrefix:
        """Which of several places an object lies in."""
        return self._runs[int(identity.name[:8], 16) % len(self._runs)]

    def path_of(self, ref: ObjectRef) -> str:
        """Where an object lies below the prefix of its address."""
        identity = self.identify(ref)
        return self.run_of(identity).path(identity)

    def keep(self, path: str) -> None:
        """An object can be read from now on."""
        self._stored.add(path)

    def forget(self, path: str) -> bool:
        """An object is about to be removed; False where there is none."""
        try:
            self._stored.remove(path)
        except KeyError:
            return False
        return True

    def cancel(self) -> None:
        for run in self._runs:
            run.calls.over = True
        super().cancel()

    def close_now(self) -> None:
        with self._closing:
            self._closed = True
            runs, self._runs = self._runs, []
            self._mover.join(self.clock_ns() + JOIN_NS)
            for run in runs:
                self._left += run.remove()
