"""Preconditioning: writes to the storage tier until its speed is steady. None of it is counted (S3)."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kvspill.errors import KvspillError
from kvspill.measure.statistics import coefficient_of_variation
from kvspill.measure.steady import NOT_STEADY, judge
from kvspill.records import GIB, MIB, NS_PER_SEC
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.preflight import PRECONDITION_PASSES_MAX
from kvspill.suite.progress import Progress
from kvspill.world import World

_OBJECT_BYTES_MAX = 16 * MIB
_OBJECTS_MIN = 16
_WRITERS = 8
_STEADY_SECONDS = 20
_STEADY_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Preconditioned:
    """How it ended."""

    written_bytes: int
    seconds: float
    steady: bool


async def precondition(world: World, backend: Backend, capacity_bytes: int, progress: Progress) -> None:
    """Bring a real device to its steady speed; a modelled one has no other."""
    if backend.capabilities.modelled:
        progress.say("preconditioning: a modelled device needs none")
        return
    done = await Preconditioner(world, backend, capacity_bytes, progress).run()
    settled = "steady" if done.steady else "not steady yet"
    progress.say(f"preconditioned with {done.written_bytes / GIB:.1f} GiB in {done.seconds:.0f} s: {settled}")


class Preconditioner:
    """Overwrites the tier's whole capacity at least once, then goes on until the speed has settled."""

    def __init__(self, world: World, backend: Backend, capacity_bytes: int, progress: Progress):
        self._world = world
        self._backend = backend
        self._capacity_bytes = capacity_bytes
        self._progress = progress
        self._object_bytes = max(MIB, min(_OBJECT_BYTES_MAX, capacity_bytes // _OBJECTS_MIN // MIB * MIB))
        self._kept: deque[ObjectRef] = deque()
        self._number = 0
        self._written_bytes = 0
        self._rates: deque[int] = deque(maxlen=_STEADY_SECONDS)
        self._done = False

    async def run(self) -> Preconditioned:
        """Write until steady, or until the capacity was written several times over; then remove it all."""
        started_ns = self._world.now_ns()
        writers = [asyncio.ensure_future(self._write()) for _ in range(_WRITERS)]
        try:
            steady = await self._watch(writers)
        finally:
            self._done = True
            await asyncio.gather(*writers, return_exceptions=True)
        await self._backend.delete(list(self._kept))
        seconds = (self._world.now_ns() - started_ns) / NS_PER_SEC
        return Preconditioned(self._written_bytes, seconds, steady)

    async def _watch(self, writers: Sequence[asyncio.Future[None]]) -> bool:
        before_bytes = 0
        while True:
            await self._world.sleep_ns(NS_PER_SEC)
            for writer in writers:
                if writer.done():
                    writer.result()
            self._rates.append(self._written_bytes - before_bytes)
            before_bytes = self._written_bytes
            self._show()
            if self._written_bytes >= self._capacity_bytes and self._is_steady():
                return True
            if self._written_bytes >= PRECONDITION_PASSES_MAX * self._capacity_bytes:
                return False

    def _is_steady(self) -> bool:
        if len(self._rates) < _STEADY_SECONDS:
            return False
        spread = coefficient_of_variation(list(self._rates))
        settled = judge(list(self._rates))["verdict"] != NOT_STEADY
        return settled and spread is not None and spread <= _STEADY_SPREAD

    async def _write(self) -> None:
        while not self._done:
            if (len(self._kept) + _WRITERS) * self._object_bytes > self._capacity_bytes and self._kept:
                await self._backend.delete([self._kept.popleft()])
                continue
            self._number += 1
            ref = ObjectRef(f"precondition_{self._number}", 0, self._object_bytes)
            completion = (await self._backend.write([WriteItem(ref)]))[0]
            if completion.error is not None:
                raise KvspillError(
                    f"--precondition: writing failed with {completion.error}; check the cache directory "
                    "and --storage-capacity-gb"
                )
            self._kept.append(ref)
            self._written_bytes += self._object_bytes

    def _show(self) -> None:
        """At least one pass; how long that takes is known, when the speed settles is not."""
        rate = sum(self._rates) / len(self._rates)
        left_bytes = max(0, self._capacity_bytes - self._written_bytes)
        estimate = f"first pass over in {left_bytes / rate:.0f} s" if rate and left_bytes else "until steady"
        written_gib, rate_gib = self._written_bytes / GIB, rate / GIB
        self._progress.say_often(
            f"preconditioning: {written_gib:.1f} GiB written, {rate_gib:.2f} GiB/s, {estimate}"
        )
