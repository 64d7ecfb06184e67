"""Both sides on one directory: the kvspill worker behind its pipe, and fio with files made for it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

from lib import fio
from lib.fio import Measured
from lib.machine import say
from lib.shape import Cell, operations

_STARTS = 6
BENCHMARKS = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class IoOptions:
    """How kvspill does its I/O."""

    io_size: int
    io_threads: int = 32
    verify: str = "off"
    io_engine: str = "threads"


class Kvspill:
    """A worker process on one directory."""

    def __init__(self, root: Path, options: IoOptions) -> None:
        settings = {
            "root": str(root),
            "io_size": options.io_size,
            "io_threads": options.io_threads,
            "verify": options.verify,
            "io_engine": options.io_engine,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lib.worker", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=BENCHMARKS,
        )
        self._hear()

    @property
    def pid(self) -> int:
        return self._process.pid

    def populate(self, entry_bytes: int, count: int, keep: Path) -> list[Path]:
        """Write entries to read later; returns links to their files, which fio reads too."""
        answer = self._ask(do="populate", entry_bytes=entry_bytes, count=count, keep=str(keep))
        return [Path(name) for name in answer["files"]]

    def measure(self, cell: Cell, seconds: float) -> tuple[Measured, dict[str, Any]]:
        """One measurement; what only kvspill can tell comes beside it."""
        answer = self._ask(
            do="measure", op=cell.op, entry_bytes=cell.entry_bytes, in_flight=cell.in_flight, seconds=seconds
        )
        names = ("bandwidth", "p95_ns", "in_flight", "cpu_seconds_per_gb", "pieces", "written")
        return Measured(**{name: answer.pop(name) for name in names}), answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the kvspill worker ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(f"the kvspill worker failed: {answer['failed']}")
        return answer


def run_fio(
    engine: str,
    cell: Cell,
    root: Path,
    old: Sequence[Path],
    fresh_bytes: int,
    seconds: float,
    join: fio.Join = None,
    huge_pages: bool = True,
) -> Measured:
    """As once, but again where the machine was too busy to let fio's threads start together."""
    for _ in range(_STARTS - 1):
        try:
            return _run_once(engine, cell, root, old, fresh_bytes, seconds, join, huge_pages)
        except fio.SlowStart as late:
            say(f"{late}; once more")
    return _run_once(engine, cell, root, old, fresh_bytes, seconds, join, huge_pages)


def _run_once(
    engine: str,
    cell: Cell,
    root: Path,
    old: Sequence[Path],
    fresh_bytes: int,
    seconds: float,
    join: fio.Join,
    huge_pages: bool,
) -> Measured:
    """fio on fresh files made for it (or the very files that kvspill reads), all removed afterwards.

    kvspill makes its files inside the measured time. fio's are there before its clock starts, but the
    processor time of making those that it wrote is added to fio's.
    """
    cell.check()
    with scratch(root) as directory:
        if cell.op == "mix":
            per_slot, fresh = 0, _prepare_mix(engine, cell, directory, old, fresh_bytes)
        else:
            per_slot, fresh = _prepare_files(engine, cell, directory, old, fresh_bytes)
        making_seconds = _make_fresh(fresh, cell)
        text = fio.job_text(engine, cell, directory, per_slot, seconds, huge_pages)
        measured = fio.run(text, directory, seconds, cell.piece_bytes, join, huge_pages)
    used = measured.written * cell.piece_bytes / cell.entry_bytes
    making_per_gb = used * making_seconds / (measured.pieces * cell.piece_bytes / 1e9)
    return replace(measured, cpu_seconds_per_gb=measured.cpu_seconds_per_gb + making_per_gb)


def _prepare_files(
    engine: str, cell: Cell, directory: Path, old: Sequence[Path], fresh_bytes: int
) -> tuple[int, list[Path]]:
    """How many files a slot of fio's has, and their paths where they are still to be made."""
    slots = fio.layout(engine, cell).slots
    have = len(old) if cell.op == "read" else fresh_bytes // cell.entry_bytes
    per_slot = max(1, have // slots)
    paths = [directory / fio.file_name(slot, number) for slot in range(slots) for number in range(per_slot)]
    if cell.op == "write":
        return per_slot, paths
    for at, path in enumerate(paths):
        os.link(old[at % len(old)], path)
    return per_slot, []


def _prepare_mix(
    engine: str, cell: Cell, directory: Path, old: Sequence[Path], moved_bytes: int
) -> list[Path]:
    """I/O logs for as many operations as could fit the time; returns the fresh files that they need."""
    count = max(2 * cell.slots, moved_bytes // cell.entry_bytes)
    writes = sum(op.write for op in islice(operations("mix", len(old)), count))
    fresh = [directory / f"fresh{number}" for number in range(writes)]
    for name, text in fio.mix_logs(engine, cell, old, fresh, count).items():
        (directory / name).write_text(text)
    return fresh


def _make_fresh(paths: Sequence[Path], cell: Cell) -> float:
    """Make new files, their room reserved but never written; returns the processor seconds of one."""
    before = time.process_time()
    for path in paths:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if cell.memory:
                # Reserving memory would be half of the writing.
                os.ftruncate(fd, cell.entry_bytes)
            else:
                os.posix_fallocate(fd, 0, cell.entry_bytes)
        finally:
            os.close(fd)
    return (time.process_time() - before) / max(1, len(paths))


@contextmanager
def scratch(root: Path) -> Iterator[Path]:
    """A directory that is gone afterwards, its blocks given back before anyone else measures."""
    directory = Path(tempfile.mkdtemp(prefix="kvspill-bench-", dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
        settle(root)


def settle(root: Path) -> None:
    """Commit the journal, so that one side's freed blocks are not discarded in the other's time."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.sync()
