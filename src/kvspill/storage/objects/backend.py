"""The object-store backend: an object per entry or block below a private prefix, on threads of its own."""

import threading
from collections.abc import Mapping, Sequence

from kvspill.errors import KvspillError
from kvspill.records import MIB, NS_PER_SEC, Completion
from kvspill.storage.base import (
    Backend,
    BackendContext,
    Capabilities,
    Note,
    ObjectRef,
    Progress,
    WriteItem,
    left_behind,
)
from kvspill.storage.files.mover import by_threads
from kvspill.storage.lanes import on_thread
from kvspill.storage.objects.calls import Calls, Tally
from kvspill.storage.objects.jobs import DeleteJob, ReadJob, WriteJob
from kvspill.storage.objects.parts import PartMemory
from kvspill.storage.objects.prefix import RunPrefix, clean, refused
from kvspill.storage.objects.stores import open_stores, parse
from kvspill.storage.stamps import BLOCK_BYTES, Identity, Verify, blocks_of, identify

_JOIN_NS = 2 * NS_PER_SEC


class ObjectBackend(Backend):
    """Objects below one or more addresses of one kind, spread by a stable hash."""

    def __init__(self, context: BackendContext):
        assert context.plane is not None, "bytes are moved here: there is no virtual time"
        settings = context.settings
        self.plane = context.plane
        self.clock_ns = context.clock_ns
        self.verify = Verify[settings["verify"].upper()]
        self.ranges = True
        """Whether every store gives parts of an object; found out by prepare."""
        self.memory = PartMemory(context.plane)
        for address in context.addresses:
            parse(address)
        self._addresses = context.addresses
        self._options = context.options
        self._threads = settings["write_threads"] or settings["io_threads"]
        self._mover = by_threads(settings["io_threads"], settings["write_threads"], context.clock_ns)
        self.tally = Tally()
        """What was asked of the stores."""
        self._runs: list[RunPrefix] = []
        self._stored: set[str] = set()
        self._closing = threading.Lock()
        self._closed = False
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

    def stored_bytes(self, nbytes: int) -> int:
        return blocks_of(nbytes) * BLOCK_BYTES

    def facts(self) -> Mapping[str, int | float | str]:
        missed = sum(run.renewal.failed for run in self._runs)
        return {**self.tally.facts(self._options), "lease_renewals_missed": missed}

    def notes(self) -> list[Note]:
        notes = left_behind(self._left, " ".join(self._addresses))
        if self._runs and not self.ranges:
            message = "The store answers no request for a part of an object, so every entry is read whole."
            notes.append(Note("no_ranges", message, "Compare it only with stores that are read so, too."))
        return notes

    async def prepare(self, progress: Progress) -> None:
        """Remove what killed runs left, take a lease, find out whether parts of objects can be read."""
        progress("object store", 0, len(self._addresses))
        try:
            await on_thread("kvspill-prepare", self._prepare)
        except KvspillError:
            await self.close()
            raise
        progress("object store", len(self._addresses), len(self._addresses))

    def _prepare(self) -> None:
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
        self._mover.start()

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._mover.loads.submit([ReadJob(self, ref) for ref in batch])

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        return await self._mover.stores.submit([WriteJob(self, ref, source) for ref, source in batch])

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._mover.removals.submit([DeleteJob(self, ref) for ref in batch])

    def run_of(self, identity: Identity) -> RunPrefix:
        """Which of several places an object lies in."""
        return self._runs[int(identity.name[:8], 16) % len(self._runs)]

    def identify(self, ref: ObjectRef) -> Identity:
        return identify(ref.key, ref.generation, self.plane.salt)

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
        self._mover.cancel()

    def stuck(self, now_ns: int, older_than_ns: int) -> list[int]:
        return self._mover.stuck(now_ns, older_than_ns)

    async def close(self) -> None:
        await on_thread("kvspill-close", self.close_now)

    def close_now(self) -> None:
        with self._closing:
            self._closed = True
            runs, self._runs = self._runs, []
            self._mover.join(self.clock_ns() + _JOIN_NS)
            for run in runs:
                self._left += run.remove()
