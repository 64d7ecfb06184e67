"""Objects of every size for the tests of backends: written, read, and looked at for errors."""

import functools
from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType

from kvspill.records import MIB, Completion
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane

SIZES = (1, 100, 4096, 5000, MIB, MIB + 1, 9 * MIB + 513)
"""Also sizes that are no multiple of a block, a piece or a page."""
IO_SIZE = MIB
IO_THREADS = 4
SETTINGS: Mapping[str, int] = MappingProxyType({"io_size": IO_SIZE, "io_threads": IO_THREADS})
"""What the shared memory is made for."""


@functools.cache
def shared_plane() -> DataPlane:
    """Data that objects are made of; filled once for all tests."""
    return DataPlane(IO_SIZE, 2 * IO_THREADS)


def some_refs(generation: int = 1) -> list[ObjectRef]:
    """An object of every size."""
    return [ObjectRef(f"u{index}_c0_t0", generation, nbytes) for index, nbytes in enumerate(SIZES)]


def items(refs: Sequence[ObjectRef]) -> list[WriteItem]:
    return [WriteItem(ref) for ref in refs]


def errors(completions: Sequence[Completion]) -> list[str | None]:
    return [completion.error for completion in completions]


async def ok(answer: Awaitable[list[Completion]], count: int) -> list[Completion]:
    """The answer, without an error in it."""
    completions = await answer
    found = [(completion.error, completion.detail) for completion in completions]
    assert found == [(None, "")] * count
    return completions


async def written(backend: Backend, refs: Sequence[ObjectRef]) -> list[Completion]:
    return await ok(backend.write(items(refs)), len(refs))
