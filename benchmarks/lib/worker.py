"""The process that drives kvspill's files backend: takes one JSON command per line, answers with one line."""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from kvspill.records import Completion
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from lib.pieces import Rows, steady
from lib.shape import Op, operations

_SWITCH_INTERVAL_SECONDS = 0.0005
"""As a run sets it."""
_POPULATE_AT_ONCE = 8
_WARM_ROUNDS = 3
_SUBDIRS = 256
_REST_SECONDS = 0.4
"""A throttle lets who was active but slow catch up: it must have forgotten the warm-up when time starts."""


class Worker:
    """One directory, one set of I/O options; a new backend for every measurement."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._root = Path(options["root"])
        self._options = FilesOptions(
            io_size=options["io_size"],
            io_threads=options["io_threads"],
            verify=options["verify"],
            io_engine=options["io_engine"],
        )
        self._plane = DataPlane(self._options.io_size, self._options.io_threads)
        # Base data is made before any clock starts, as fio fills its buffers before its own.
        self._plane.fill_some(lambda: True)
        self._old_bytes = 0
        self._old: list[tuple[str, Path]] = []
        """Entries to read: where they lie in a run directory, and the link that outlives it."""

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        entry_bytes = command["entry_bytes"]
        if command["do"] == "populate":
            return asyncio.run(self._populate(entry_bytes, command["count"], Path(command["keep"])))
        in_flight, seconds = command["in_flight"], command["seconds"]
        return asyncio.run(self._measure(command["op"], entry_bytes, in_flight, seconds))

    async def _populate(self, entry_bytes: int, count: int, keep: Path) -> dict[str, Any]:
        """Write the entries that later measurements read, and keep links to their files in `keep`."""
        backend = self._backend()
        await backend.prepare(_silent)
        try:
            for first in range(0, count, _POPULATE_AT_ONCE):
                numbers = range(first, min(count, first + _POPULATE_AT_ONCE))
                _no_errors(await backend.write([WriteItem(_old(number, entry_bytes)) for number in numbers]))
            run = backend.place.sites[0].run.path
            files = sorted(path for path in run.glob("*/*") if path.is_file())
            self._old, self._old_bytes = [], entry_bytes
            for number, path in enumerate(files):
                link = keep / f"old{number}"
                os.link(path, link)
                self._old.append((str(path.relative_to(run)), link))
        finally:
            await backend.close()
        return {"files": [str(link) for _, link in self._old]}

    async def _measure(self, op: str, entry_bytes: int, in_flight: int, seconds: float) -> dict[str, Any]:
        if op != "write" and self._old_bytes != entry_bytes:
            raise ValueError(f"{op} of {entry_bytes}-byte entries: populate with that size first")
        backend = self._backend()
        await backend.prepare(_silent)
        try:
            if backend.engine_fallback is not None:
                raise RuntimeError(f"asked for io_uring: {backend.engine_fallback[0]}")
            self._link_old(backend.place.sites[0].run.path)
            await self._warm(backend)
            return await _window(backend, operations(op, len(self._old)), entry_bytes, in_flight, seconds)
        finally:
            await backend.close()

    def _backend(self) -> FilesBackend:
        return FilesBackend([self._root], self._options, plane=self._plane)

    def _link_old(self, run: Path) -> None:
        """Names depend on the key alone as long as the plane is the same, so old files fit a new backend."""
        for number in range(_SUBDIRS):
            # A run makes each when its first file comes; in a window of a second that would weigh too much.
            (run / f"{number:02x}").mkdir(mode=0o700)
        for relative, link in self._old:
            os.link(link, run / relative)

    async def _warm(self, backend: FilesBackend) -> None:
        """Let every I/O thread touch its memory, as fio's threads do before their clock starts."""
        tiny = ObjectRef("warm", 1, 4096)
        _no_errors(await backend.write([WriteItem(tiny)]))
        for _ in range(_WARM_ROUNDS):
            _no_errors(await backend.read([tiny] * (4 * self._options.io_threads)))
        _no_errors(await backend.delete([tiny]))
        await asyncio.sleep(_REST_SECONDS)


async def _window(
    backend: FilesBackend, ops: Iterator[Op], entry_bytes: int, in_flight: int, seconds: float
) -> dict[str, Any]:
    """Keep entries in flight until time is up; pieces under way then are finished and counted, as in fio."""
    done: list[Completion] = []
    written = 0

    async def stream() -> None:
        nonlocal written
        for op in ops:
            if op.write:
                ref = ObjectRef(f"fresh{op.number}", 1, entry_bytes)
                (completion,) = await backend.write([WriteItem(ref)])
                written += len(completion.pieces)
            else:
                (completion,) = await backend.read([_old(op.number, entry_bytes)])
            done.append(completion)
            if completion.error is not None:
                return

    usage = resource.getrusage(resource.RUSAGE_SELF)
    start_ns = time.monotonic_ns()
    streams = [asyncio.ensure_future(stream()) for _ in range(in_flight)]
    await asyncio.sleep(seconds)
    backend.cancel()
    await asyncio.gather(*streams)
    used = resource.getrusage(resource.RUSAGE_SELF)
    failed = {c.error: c.detail for c in done if c.error not in (None, "cancelled")}
    if failed:
        raise RuntimeError(f"operations failed: {failed}")
    rows = np.concatenate([_rows(completion) for completion in done])
    middle = steady(rows, start_ns, seconds)
    took_ns = rows[:, 1] - rows[:, 0]
    cpu_seconds = used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime
    return {
        "bandwidth": middle.bandwidth,
        "p95_ns": middle.p95_ns,
        "in_flight": middle.in_flight,
        "cpu_seconds_per_gb": cpu_seconds / (int(rows[:, 2].sum()) / 1e9),
        "pieces": len(rows),
        "written": written,
        "direct": backend.capabilities.direct_io,
        "all_mean_ns": float(took_ns.mean()),
        "all_p95_ns": float(np.quantile(took_ns, 0.95, method="inverted_cdf")),
    }


def _rows(completion: Completion) -> Rows:
    return np.array(list(completion.pieces), dtype=np.int64).reshape(-1, 3)


def _old(number: int, entry_bytes: int) -> ObjectRef:
    return ObjectRef(f"old{number}", 1, entry_bytes)


def _no_errors(completions: list[Completion]) -> None:
    failed = {c.error: c.detail for c in completions if c.error is not None}
    if failed:
        raise RuntimeError(f"operations failed: {failed}")


def _silent(what: str, done: int, total: int) -> None:
    """Preparation has nothing to tell."""


def main() -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    worker = Worker(json.loads(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:
            # The other side of the pipe must hear of it instead of waiting.
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; whoever started this one says what there is to say.
    with suppress(KeyboardInterrupt):
        main()
