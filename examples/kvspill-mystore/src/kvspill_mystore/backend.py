"""The backend mystore: entries appended to one log file, found by an index, checked by checksums."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kvspill.plugins import Need, Option, Plugin
from kvspill.records import NS_PER_SEC, Completion
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
from kvspill.storage.jobs import Job, Worker
from kvspill.storage.lanes import Lanes, on_thread
from kvspill.storage.rundir import RunDir
from kvspill.storage.stamps import check, identify, stamp
from kvspill_mystore.log import Log, Record, checksum, padded


class LogBackend(Backend):
    """One log file under the first directory of the run."""

    def __init__(self, context: BackendContext):
        assert context.plane is not None, "bytes are moved here: there is no virtual time"
        self.plane = context.plane
        self.clock_ns = context.clock_ns
        self._root, self._direct = context.roots[0], str(context.settings["direct"])
        self._lanes = Lanes("mystore", int(context.options["threads"]), context.clock_ns)
        self._run: RunDir | None = None
        self._notes: list[Note] = []
        self.log: Log | None = None

    @property
    def capabilities(self) -> Capabilities:
        access = None if self.log is None else self.log.access
        return Capabilities(
            name="mystore",
            modelled=False,
            direct_io=access is not None and access.direct,
            verifies=True,
            files_opened_direct=int(access is not None and access.direct),
            files_opened_buffered=int(access is not None and not access.direct),
            description="one log file" + (f" on {access.description}" if access else ""),
        )

    def stored_bytes(self, nbytes: int) -> int:
        return padded(nbytes)

    async def prepare(self, progress: Progress) -> None:
        progress("log file", 0, 1)
        await on_thread("mystore-open", self._open)
        self._lanes.start()

    def _open(self) -> None:
        self._run = RunDir(self._root)
        self.log = Log(self._run, self._direct)

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._lanes.submit([_Read(self, ref) for ref in batch])

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        return await self._lanes.submit([_Write(self, item) for item in batch])

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._lanes.submit([_Delete(self, ref) for ref in batch])

    def cancel(self) -> None:
        self._lanes.cancel()

    def stuck(self, now_ns: int, older_than_ns: int) -> list[int]:
        return self._lanes.stuck(now_ns, older_than_ns)

    def notes(self) -> list[Note]:
        return list(self._notes)

    async def close(self) -> None:
        await on_thread("mystore-close", self.close_now)

    def close_now(self) -> None:
        self._lanes.join(self.clock_ns() + 2 * NS_PER_SEC)
        if self.log is not None:
            self.log.close()
            self.log = None
        if self._run is not None:
            self._notes += left_behind(self._run.remove())

    @contextmanager
    def content(self, item: WriteItem, offset: int, nbytes: int) -> Iterator[Sequence[Any]]:
        """Buffers with a part of the object: those that another tier lends, or made here."""
        if item.source is not None:
            yield item.source.buffers(offset, nbytes)
            return
        with self.plane.lease(nbytes) as memory:
            stamp(memory, identify(item.ref.key, item.ref.generation, self.plane.salt), offset, nbytes)
            yield [memory]


class _LogJob(Job):
    """One operation on one thread, timed around its system calls."""

    def __init__(self, backend: LogBackend, ref: ObjectRef):
        super().__init__()
        assert backend.log is not None, "prepare() opens the log"
        self.backend, self.log, self.ref = backend, backend.log, ref
        self.pieces: list[tuple[int, int, int]] = []
        self.device_ns = 0

    def parts(self) -> Iterator[tuple[int, int]]:
        """Offset and padded length of each piece, for as long as nothing is wrong."""
        whole, step = padded(self.ref.nbytes), self.backend.plane.io_size
        for offset in range(0, whole, step):
            if self.error is not None:
                return
            yield offset, min(step, whole - offset)

    @contextmanager
    def timed(self, nbytes: int = 0) -> Iterator[None]:
        started_ns = self.backend.clock_ns()
        yield
        ended_ns = self.backend.clock_ns()
        self.device_ns += ended_ns - started_ns
        if nbytes:
            self.pieces.append((started_ns, ended_ns, nbytes))

    def complete(self, finished_ns: int) -> Completion:
        times = (self.submitted_ns, self.started_ns, finished_ns, self.device_ns)
        return Completion(*times, self.pieces, self.error, self.detail)


class _Write(_LogJob):
    def __init__(self, backend: LogBackend, item: WriteItem):
        super().__init__(backend, item.ref)
        self.item = item

    def move(self, worker: Worker) -> None:
        del worker
        start = self.log.append(self.ref.nbytes)
        sums: list[int] = []
        for offset, nbytes in self.parts():
            with self.backend.content(self.item, offset, nbytes) as buffers:
                sums.append(checksum(buffers))
                with self.timed(nbytes):
                    moved = os.pwritev(self.log.fd, buffers, start + offset)
            if moved != nbytes:
                self.fail("short_write", f"{moved} of {nbytes} bytes at {start + offset}")
        record = Record(start, self.ref.nbytes, tuple(sums))
        # What failed or was stopped is not readable; its room is given back, as that of an old version.
        old = self.log.keep(self.ref, record) if self.error is None else record
        if old is not None:
            self.log.punch(old.offset, old.nbytes)


class _Read(_LogJob):
    def move(self, worker: Worker) -> None:
        record = self.log.find(self.ref)
        if record is None:
            self.fail("ENOENT")
            return
        identity = identify(self.ref.key, self.ref.generation, self.backend.plane.salt)
        for number, (offset, nbytes) in enumerate(self.parts()):
            memory = worker.memory(self.backend.plane.io_size)[:nbytes]
            with self.timed(nbytes):
                moved = os.preadv(self.log.fd, [memory.data], record.offset + offset)
            if moved != nbytes:
                self.fail("short_read", f"{moved} of {nbytes} bytes at {record.offset + offset}")
            elif checksum([memory]) != record.checksums[number]:
                self.fail("corrupt", f"the checksum of piece {number} differs")
            elif (wrong := check(memory, identity, offset, nbytes)) is not None:
                self.fail(wrong)


class _Delete(_LogJob):
    def move(self, worker: Worker) -> None:
        del worker
        record = self.log.keep(self.ref, None)
        if record is None:
            self.fail("ENOENT")
            return
        with self.timed():
            number = self.log.punch(record.offset, record.nbytes)
        if number:
            self.fail(errno.errorcode.get(number, "EIO"))


PLUGIN = Plugin(
    name="mystore",
    help="one log file with an index and checksums",
    make=LogBackend,
    options=(Option("threads", "I/O threads", default=8, kind=int, minimum=1, maximum=256),),
    needs=frozenset({Need.DIRECTORY}),
)
