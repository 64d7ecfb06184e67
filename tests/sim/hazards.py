"""A device on which many kinds of things go wrong, and which knows what it really holds and served."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvspill.records import Completion
from kvspill.storage.base import Backend, Capabilities, ObjectRef, Progress, Source, WriteItem

READ_KINDS = ("EIO", "EMFILE", "ENOMEM", "ESTALE", "short_read", "ENODEV")
WRITE_KINDS = ("EIO", "EMFILE", "ENOMEM", "ENOSPC", "EROFS", "EDQUOT", "short_write")
DELETE_KINDS = ("EIO", "EROFS", "EBUSY")
ROT_KINDS = ("torn", "stale_generation", "misdirected", "corrupt", "short_read", "ENOENT", "EIO")

_Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which some verbs fail with one kind: a directory unmounted, a file system read-only."""

    from_ns: int
    until_ns: int
    kind: str
    verbs: tuple[str, ...]

    def hits(self, verb: str, at_ns: int) -> bool:
        return verb in self.verbs and self.from_ns <= at_ns < self.until_ns


@dataclass(frozen=True, slots=True)
class Hazards:
    """What may go wrong on one device. Chances are per operation."""

    fail: dict[str, float] = field(default_factory=dict)
    """By verb."""
    rot: float = 0.0
    """Chance that an object is damaged or vanishes once it was written."""
    slow: float = 0.0
    slow_ns: int = 0
    hang: float = 0.0
    stubborn: bool = False
    """A hanging operation does not end even where the run is over, as a thread in a dead device."""
    disk_bytes: int | None = None
    """What the device really holds, where that is less than the run was told."""
    outages: tuple[Outage, ...] = ()

    @property
    def none(self) -> bool:
        return self == Hazards()


@dataclass(frozen=True, slots=True)
class Fault:
    """One operation that this device failed."""

    verb: str
    kind: str
    finished_ns: int


class HazardousDevice(Backend):
    """Wraps a modelled backend. Faults are drawn from the given stream only, so that a seed replays them."""

    def __init__(
        self, inner: Backend, hazards: Hazards, rng: random.Random, clock_ns: Callable[[], int]
    ) -> None:
        self._inner = inner
        self._hazards = hazards
        self._rng = rng
        self._clock_ns = clock_ns
        self._over = asyncio.Event()
        self._damaged: dict[_Key, str] = {}
        self._writing_bytes = 0
        self._held_bytes = 0
        self.objects: dict[_Key, int] = {}
        """Stored bytes of every object that the device holds now."""
        self.unreported_reads: Counter[_Key] = Counter()
        """Reads that really were served and have not been reported yet."""
        self.faults: list[Fault] = []
        self.hangs = 0

    @property
    def device_bytes(self) -> int:
        """Bytes that are taken on the device, those being written included."""
        return self._held_bytes + self._writing_bytes

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def stored_bytes(self, nbytes: int) -> int:
        return self._inner.stored_bytes(nbytes)

    async def prepare(self, progress: Progress) -> None:
        await self._inner.prepare(progress)

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await together([self._read(ref) for ref in batch])

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        return await together([self._write(item) for item in batch])

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await together([self._delete(ref) for ref in batch])

    async def _read(self, ref: ObjectRef) -> Completion:
        key = (ref.key, ref.generation)
        kind = self._drawn("read", READ_KINDS)
        was_there = key in self.objects
        done = await self._delayed((await self._inner.read([ref]))[0])
        if done.error is None:
            kind = self._damaged.get(key) or kind
            done = self._answer("read", done, kind)
        if done.error is None:
            # What vanishes while another reads it is read to its end, as an open file is.
            assert was_there, f"{key} was read after it had gone"
            self.unreported_reads[key] += 1
        return done

    async def _write(self, item: WriteItem) -> Completion:
        key = (item.ref.key, item.ref.generation)
        stored_bytes = self.stored_bytes(item.ref.nbytes)
        kind = self._drawn("write", WRITE_KINDS)
        limit = self._hazards.disk_bytes
        if limit is not None and self.device_bytes + stored_bytes > limit:
            kind = "ENOSPC"
        self._writing_bytes += stored_bytes
        done = await self._delayed((await self._inner.write([item]))[0])
        if done.error is None:
            done = self._answer("write", done, kind)
        self._writing_bytes -= stored_bytes
        if done.error is None:
            self._hold(key, stored_bytes)
            if self._rng.random() < self._hazards.rot:
                self._damage(key)
        else:
            await self._inner.delete([item.ref])
        return done

    async def _delete(self, ref: ObjectRef) -> Completion:
        kind = self._drawn("delete", DELETE_KINDS)
        done = (await self._inner.delete([ref]))[0]
        if done.error is None:
            # The object is there to be deleted unless it vanished; a failed delete leaves it there.
            gone = (ref.key, ref.generation) not in self.objects
            done = self._answer("delete", done, "ENOENT" if gone else kind)
            if done.error is None:
                self._let_go((ref.key, ref.generation))
        return done

    def _drawn(self, verb: str, kinds: Sequence[str]) -> str | None:
        outage = next((one for one in self._hazards.outages if one.hits(verb, self._clock_ns())), None)
        draw = self._rng.random() < self._hazards.fail.get(verb, 0.0)
        kind = self._rng.choice(kinds)
        return outage.kind if outage is not None else kind if draw else None

    def _damage(self, key: _Key) -> None:
        kind = self._rng.choice(ROT_KINDS)
        self._damaged[key] = kind
        if kind == "ENOENT":
            self._let_go(key)

    def _hold(self, key: _Key, stored_bytes: int) -> None:
        self.objects[key] = stored_bytes
        self._held_bytes += stored_bytes

    def _let_go(self, key: _Key) -> None:
        self._held_bytes -= self.objects.pop(key)

    async def _delayed(self, done: Completion) -> Completion:
        """The operation may take longer than the model says, or for ever."""
        hangs = self._rng.random() < self._hazards.hang
        slow = self._rng.random() < self._hazards.slow
        if done.error is None and hangs:
            self.hangs += 1
            if self._hazards.stubborn:
                await asyncio.get_running_loop().create_future()
            await self._over.wait()
            now_ns = self._clock_ns()
            whole = (done.started_ns, now_ns, 0)
            device_ns = now_ns - done.started_ns
            return replace(done, finished_ns=now_ns, device_ns=device_ns, error="cancelled", pieces=(whole,))
        if done.error is None and slow:
            await asyncio.sleep(self._hazards.slow_ns / 1e9)
            return replace(done, finished_ns=self._clock_ns())
        return done

    def _answer(self, verb: str, done: Completion, kind: str | None) -> Completion:
        if kind is None:
            return done
        self.faults.append(Fault(verb, kind, done.finished_ns))
        moved = ((done.started_ns, done.finished_ns, 4096),) if kind.startswith(("short", "EIO")) else ()
        return replace(done, error=kind, pieces=moved)

    def lend(self, ref: ObjectRef) -> Source | None:
        return self._inner.lend(ref)

    def cancel(self) -> None:
        self._over.set()
        self._inner.cancel()

    async def close(self) -> None:
        self._over.set()
        await self._inner.close()


async def together(calls: Sequence[Coroutine[Any, Any, Completion]]) -> list[Completion]:
    """All at once; a single one needs no task of its own."""
    if len(calls) == 1:
        return [await calls[0]]
    return list(await asyncio.gather(*calls))
