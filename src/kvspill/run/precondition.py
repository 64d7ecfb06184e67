"""Preconditioning: writes to the storage tier until its speed is steady. None of it is counted (S3)."""

import asyncio
from collections import deque
from dataclasses import dataclass

from kvspill.config import Config
from kvspill.config.config import gib_to_bytes
from kvspill.errors import KvspillError
from kvspill.measure.statistics import coefficient_of_variation
from kvspill.measure.steady import STEADY, judge
from kvspill.records import MIB, NS_PER_SEC
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.devices import NOT_PRECONDITIONED
from kvspill.run.preflight import PRECONDITION_PASSES_MAX
from kvspill.run.progress import Progress
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.texts import size_text
from kvspill.world import World

_OBJECT_BYTES_MAX = 16 * MIB
_OBJECTS_MIN = 16
WRITERS = 8
_SAMPLES = 20
_STEADY_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Preconditioned:
    """How it ended."""

    written_bytes: int
    seconds: float
    steady: bool

    @property
    def text(self) -> str:
        settled = "steady" if self.steady else "not steady yet"
        took = f"{self.seconds:.0f} s" if self.seconds >= 1 else "less than 1 s"
        return f"preconditioned with {size_text(self.written_bytes)} in {took}: {settled}"


async def precondition(
    world: World, backend: Backend, config: Config, capacity_bytes: int, progress: Progress
) -> Preconditioned | None:
    """Bring a real device to its steady speed; a modelled one has no other."""
    if backend.capabilities.modelled:
        progress.say("preconditioning: a modelled device needs none")
        return None
    size_gib = config.precondition_size_gb
    size_bytes = None if size_gib is None else gib_to_bytes(size_gib)
    writers = config.precondition_threads or WRITERS
    done = await Preconditioner(world, backend, capacity_bytes, progress, size_bytes, writers).run()
    progress.say(done.text)
    return done


def preconditioning_cautions(done: Preconditioned | None) -> list[Caution]:
    """What a result must say of a device that did not settle."""
    if done is None or done.steady:
        return []
    return [NOT_PRECONDITIONED.of(state=done.text)]


class Preconditioner:
    """Overwrites the tier's whole capacity at least once, then goes on until the speed has settled.

    Where a size is given, that much is written, settled or not.
    """

    def __init__(
        self,
        world: World,
        backend: Backend,
        capacity_bytes: int,
        progress: Progress,
        size_bytes: int | None = None,
        writers: int = WRITERS,
    ):
        self._world = world
        self._backend = backend
        self._capacity_bytes = capacity_bytes
        self._progress = progress
        smallest = capacity_bytes // max(_OBJECTS_MIN, 2 * writers) // MIB * MIB
        self._object_bytes = max(MIB, min(_OBJECT_BYTES_MAX, smallest))
        self._kept: deque[ObjectRef] = deque()
        self._writers = writers
        self._fixed = size_bytes is not None
        self._most_bytes = PRECONDITION_PASSES_MAX * capacity_bytes if size_bytes is None else size_bytes
        self._number = 0
        self._written_bytes = 0
        self._rates: deque[float] = deque(maxlen=_SAMPLES)
        self._sampled_bytes, self._sampled_ns = 0, world.now_ns()
        self._steady = False
        self._done = False

    async def run(self) -> Preconditioned:
        """Write until steady, or until the capacity was written several times over; then remove it all."""
        started_ns = self._world.now_ns()
        writers = [asyncio.ensure_future(self._write()) for _ in range(self._writers)]
        try:
            await asyncio.wait(writers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._done = True
            await asyncio.gather(*writers, return_exceptions=True)
        for writer in writers:
            writer.result()
        await self._backend.delete(list(self._kept))
        seconds = (self._world.now_ns() - started_ns) / NS_PER_SEC
        steady = self._is_steady() if self._fixed else self._steady
        return Preconditioned(self._written_bytes, seconds, steady)

    def _written(self) -> None:
        """One more object is there: note the speed, and end where it is steady or enough was written."""
        self._written_bytes += self._object_bytes
        passed_ns = self._world.now_ns() - self._sampled_ns
        written_bytes = self._written_bytes - self._sampled_bytes
        # Small capacities are through in less than a second: a tenth of one is a sample, too.
        if passed_ns >= NS_PER_SEC or (passed_ns > 0 and written_bytes * 10 >= self._capacity_bytes):
            self._rates.append(written_bytes * NS_PER_SEC / passed_ns)
            self._sampled_bytes, self._sampled_ns = self._written_bytes, self._world.now_ns()
            self._show()
            if not self._fixed and self._written_bytes >= self._capacity_bytes and self._is_steady():
                self._steady = self._done = True
        if self._begun_bytes >= self._most_bytes:
            self._done = True

    @property
    def _begun_bytes(self) -> int:
        return self._number * self._object_bytes

    def _is_steady(self) -> bool:
        if len(self._rates) < _SAMPLES:
            return False
        spread = coefficient_of_variation(list(self._rates))
        settled = judge(list(self._rates))["verdict"] == STEADY
        return settled and spread is not None and spread <= _STEADY_SPREAD

    async def _write(self) -> None:
        while not self._done:
            if (len(self._kept) + self._writers) * self._object_bytes > self._capacity_bytes and self._kept:
                await self._backend.delete([self._kept.popleft()])
                continue
            if self._begun_bytes >= self._most_bytes:
                return
            self._number += 1
            ref = ObjectRef(f"precondition_{self._number}", 0, self._object_bytes)
            completion = (await self._backend.write([WriteItem(ref)]))[0]
            if completion.error is not None:
                raise KvspillError(
                    f"--precondition: writing failed with {completion.error}; check the cache directory "
                    "and --storage-capacity-gb"
                )
            self._kept.append(ref)
            self._written()

    def _show(self) -> None:
        """How long one pass takes is known; when the speed settles is not, but when it ends at the latest."""
        rate = sum(self._rates) / len(self._rates)
        first_bytes = self._capacity_bytes - self._written_bytes
        if self._fixed:
            estimate = f"over in {max(0, self._most_bytes - self._written_bytes) / rate:.0f} s"
        elif first_bytes > 0:
            estimate = f"first pass over in {first_bytes / rate:.0f} s"
        else:
            left_seconds = max(0, self._most_bytes - self._written_bytes) / rate
            estimate = f"until steady, {left_seconds:.0f} s more at most"
        self._progress.say_often(
            f"preconditioning: {size_text(self._written_bytes)} written, {size_text(rate)}/s, {estimate}"
        )
