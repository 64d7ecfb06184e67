"""A backend that fails at random, for deterministic fault simulation: the same seed, the same faults."""

import random
from collections.abc import Sequence
from dataclasses import replace

from kvspill.records import Completion
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend, Capabilities, ObjectRef, Progress, Source, WriteItem


class FaultyBackend(Backend):
    """Wraps a modelled backend; each operation fails with the given probability, after taking its time."""

    def __init__(
        self,
        inner: ModelledBackend,
        rng: random.Random,
        read: float = 0.0,
        write: float = 0.0,
        delete: float = 0.0,
        error: str = "EIO",
    ) -> None:
        self.inner = inner
        self.error = error
        self.rng = rng
        self.probability = {"read": read, "write": write, "delete": delete}
        self.injected = {"read": 0, "write": 0, "delete": 0}
        self.objects: set[tuple[str, int]] = set()

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def stored_bytes(self, nbytes: int) -> int:
        return self.inner.stored_bytes(nbytes)

    async def prepare(self, progress: Progress) -> None:
        await self.inner.prepare(progress)

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return [self._maybe_fail("read", done) for done in await self.inner.read(batch)]

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        completions = [self._maybe_fail("write", done) for done in await self.inner.write(batch)]
        for item, completion in zip(batch, completions, strict=True):
            if completion.error is None:
                self.objects.add((item.ref.key, item.ref.generation))
            else:
                await self.inner.delete([item.ref])
        return completions

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        completions = [self._maybe_fail("delete", done) for done in await self.inner.delete(batch)]
        for ref, completion in zip(batch, completions, strict=True):
            if completion.error is None:
                self.objects.remove((ref.key, ref.generation))
        return completions

    def _maybe_fail(self, verb: str, completion: Completion) -> Completion:
        if completion.error is None and self.rng.random() < self.probability[verb]:
            self.injected[verb] += 1
            return replace(completion, error=self.error)
        return completion

    def lend(self, ref: ObjectRef) -> Source | None:
        return self.inner.lend(ref)

    def cancel(self) -> None:
        self.inner.cancel()

    async def close(self) -> None:
        await self.inner.close()
