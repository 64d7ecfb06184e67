"""A run directory killed in the making or in its removal is recognised, and a removal never fails a run."""

import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from kvspill.storage.rundir import RunDir, clean


def test_a_lock_of_the_users_own_on_the_directory_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    """As with `flock DIR kvspill run …`."""
    theirs = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        run = RunDir(tmp_path)
        assert run.path.is_dir()
        assert run.remove() == []
    finally:
        os.close(theirs)


def test_runs_that_start_and_clean_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def start_and_end() -> None:
        try:
            for _ in range(20):
                clean(tmp_path)
                run = RunDir(tmp_path)
                run.make_subdir("ab")
                (run.path / "ab" / ("ab" * 16 + "-1")).write_text("x")
                assert run.remove() == []
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=start_and_end) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_was_moved_away_is_still_cleaned(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    run = RunDir(root)
    run.make_subdir("ab")
    root.rename(tmp_path / "moved")
    root.mkdir()
    assert run.remove() == []
    assert list((tmp_path / "moved").iterdir()) == []


def test_a_run_directory_that_somebody_removed_costs_nothing(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    shutil.rmtree(run.path)
    assert run.remove() == []


def test_what_the_file_system_will_not_remove_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path)
    run.make_subdir("ab")
    name = "ab" * 16 + "-1"
    (run.path / "ab" / name).write_text("x")
    real_unlink = os.unlink

    def refuse(path: Path, **_where: Any) -> None:
        raise OSError(30, "Read-only file system", path)

    monkeypatch.setattr(os, "unlink", refuse)
    assert run.remove() == [f"ab/{name} (Read-only file system)"]
    monkeypatch.setattr(os, "unlink", real_unlink)
    kept: list[str] = []
    assert clean(tmp_path, kept) == [run.path]
    assert kept == []


def test_clean_says_what_of_a_killed_run_is_not_ours(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    (run.path / "notes.txt").write_text("mine")
    run.remove()
    kept: list[str] = []
    assert clean(tmp_path, kept) == []
    assert kept == [str(run.path / "notes.txt")]
