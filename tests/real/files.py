"""A files backend on a real directory, and short words for what is asked of it."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kvspill.records import MIB
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files.backend import FilesBackend, FilesOptions

Scenario = Callable[[FilesBackend], Coroutine[Any, Any, None]]


@functools.cache
def plane() -> DataPlane:
    return DataPlane(MIB, 4)


def backend(*roots: Path, **options: str) -> FilesBackend:
    wanted = FilesOptions(io_size=MIB, io_threads=4, **options)  # type: ignore[arg-type]
    return FilesBackend(roots, wanted, plane=plane())


def run(files: FilesBackend, scenario: Scenario) -> None:
    async def main() -> None:
        await files.prepare(lambda *_: None)
        try:
            await scenario(files)
        finally:
            await files.close()

    asyncio.run(main())


async def write(files: FilesBackend, *refs: ObjectRef) -> None:
    assert [c.error for c in await files.write([WriteItem(ref) for ref in refs])] == [None] * len(refs)


async def read_error(files: FilesBackend, ref: ObjectRef) -> str | None:
    (completion,) = await files.read([ref])
    return completion.error


def objects(files: FilesBackend) -> list[Path]:
    return sorted(path for site in files.place.sites for path in site.run.path.glob("??/*-*"))
