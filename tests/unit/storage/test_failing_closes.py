"""A close that fails, as on network file systems and under quotas: no room is lost, nothing stays behind."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvspill.records import MIB
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.leftovers import leftovers, remove_leftover
from kvspill.storage.rundir import MARKER, RunDir, clean

pytestmark = pytest.mark.real
ENTRY = "ab" * 16 + "-1"
REF = ObjectRef("key", 1, MIB)


def failing(patch: pytest.MonkeyPatch, root: Path, met_by: Callable[[str], bool]) -> list[str]:
    """Have closes below root fail after they were done; returns the list of those that did."""
    close, met = os.close, []

    def failing_close(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        close(fd)
        if path.startswith(str(root)) and met_by(path):
            met.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    patch.setattr(os, "close", failing_close)
    return met


def is_entry(path: str) -> bool:
    return len(Path(path).name) >= len(ENTRY)


def files_below(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*-*") if is_entry(str(path)) and path.is_file()]


@pytest.mark.parametrize("rename", ["on", "off"])
@pytest.mark.parametrize("layout", ["files", "flat", "tree"])
def test_a_write_whose_file_cannot_be_closed_has_failed_and_takes_no_room(
    tmp_path: Path, layout: str, rename: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        options = FilesOptions(io_size=MIB, io_threads=2, layout=layout, rename=rename)
        backend = FilesBackend([tmp_path], options, plane=DataPlane(MIB, 2))
        await backend.prepare(lambda *_: None)
        with monkeypatch.context() as patch:
            met = failing(patch, tmp_path, is_entry)
            (done,) = await backend.write([WriteItem(REF)])
            assert (done.error, len(met)) == ("EIO", 1)
            assert files_below(tmp_path) == []
        assert [c.error for c in await backend.write([WriteItem(REF)])] == [None]
        with monkeypatch.context() as patch:
            failing(patch, tmp_path, is_entry)
            assert [c.error for c in await backend.read([REF])] == ["EIO"]
        await backend.close()

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", ["files", "tree", "buckets"])
def test_a_failed_write_that_cannot_be_removed_says_that_it_keeps_its_room(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    async def scenario() -> None:
        options = FilesOptions(io_size=MIB, io_threads=2, layout=layout, unit_bytes=MIB)
        backend = FilesBackend([tmp_path], options, plane=DataPlane(MIB, 2))
        await backend.prepare(lambda *_: None)
        with monkeypatch.context() as patch:
            failing(patch, tmp_path, is_entry)
            (done,) = await backend.write([WriteItem(REF)])
            assert (done.error, done.keeps_room) == ("EIO", False)
            patch.setattr(os, "unlink", refuse)
            (done,) = await backend.write([WriteItem(REF)])
            assert (done.error, done.keeps_room) == ("EIO", True)
        await backend.close()

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_a_bucket_that_cannot_be_closed_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        options = FilesOptions(io_size=MIB, io_threads=2, layout="buckets", unit_bytes=MIB)
        backend = FilesBackend([tmp_path], options, plane=DataPlane(MIB, 2))
        await backend.prepare(lambda *_: None)
        with monkeypatch.context() as patch:
            met = failing(patch, tmp_path, lambda path: "probe" not in path and not Path(path).is_dir())
            (done,) = await backend.write([WriteItem(REF)])
        assert (done.error, len(met) > 0) == ("EIO", True)
        assert [c.error for c in await backend.read([REF])] == ["ENOENT"]
        await backend.close()

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


def filled_run(root: Path) -> RunDir:
    run = RunDir(root)
    for name in ("ab", "cd"):
        run.make_subdir(name)
        (run.path / name / ENTRY).write_text("the run's")
    return run


def test_a_run_whose_directories_cannot_be_closed_is_removed_and_what_is_left_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [filled_run(tmp_path) for _ in range(2)]
    (runs[0].path / "ab" / "notes.npy").write_text("not the run's")
    open_before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        met = failing(patch, tmp_path, lambda _path: True)
        assert runs[0].remove() == ["ab/notes.npy"]
        assert runs[1].remove() == []
    assert met
    assert open_before - len(os.listdir("/proc/self/fd")) == 12
    assert files_below(runs[0].path) == []
    assert list(tmp_path.iterdir()) == [runs[0].path]


def test_what_a_killed_run_left_is_removed_where_no_directory_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked, unmarked = filled_run(tmp_path), filled_run(tmp_path)
    (unmarked.path / MARKER).unlink()
    # As if it had been killed: only the lock tells a run that is alive.
    os.close(marked._lock_fd)
    with monkeypatch.context() as patch:
        failing(patch, tmp_path, lambda _path: True)
        assert clean(tmp_path) == [marked.path]
        (leftover,) = leftovers(tmp_path)
        assert remove_leftover(leftover) == []
    assert list(tmp_path.iterdir()) == []
    for fd in (marked.fd, marked._root_fd, unmarked.fd, unmarked._root_fd, unmarked._lock_fd):
        os.close(fd)


def test_the_other_runs_are_removed_whatever_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [tmp_path / name for name in ("a", "b")]
    for root in roots:
        root.mkdir()
    backend = FilesBackend(roots, FilesOptions(io_size=MIB, io_threads=2), plane=DataPlane(MIB, 2))
    remove = RunDir.remove

    def refused(run: RunDir, keep_fds: bool = False) -> list[str]:
        remove(run, keep_fds)
        if run.root == roots[0]:
            raise OSError(errno.EIO, "refused")
        return []

    monkeypatch.setattr(RunDir, "remove", refused)
    asyncio.run(backend.prepare(lambda *_: None))
    backend.close_now()
    assert ["refused" in left for left in backend.left_behind] == [True]
    assert [list(root.iterdir()) for root in roots] == [[], []]
