"""Run directories: private, locked, and removed without touching what the run did not make."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvspill.errors import UsageError
from kvspill.storage.rundir import MARKER, RunDir, clean

pytestmark = pytest.mark.real

LEAVE_BEHIND = """
import os, sys
from pathlib import Path
from kvspill.storage.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
run.make_subdir("ab")
(run.path / "ab" / ("ab" * 16 + "-1")).write_bytes(b"data")
(run.path / "ab" / ("ab" * 16 + "-2.tmp")).write_bytes(b"half")
print(run.path, flush=True)
os._exit(9)
"""


def killed_run(root: Path) -> Path:
    """What a run that was killed leaves."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVE_BEHIND, str(root)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 9, done.stderr
    return Path(done.stdout.strip())


def test_a_run_directory_is_private_and_named_after_the_process(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert run.name.startswith(f"kvspill-{os.getpid()}-")
    assert run.remove() == []
    assert list(tmp_path.iterdir()) == []


def test_removing_twice_is_harmless(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.remove()
    assert run.remove() == []


def test_a_killed_run_is_cleaned_by_the_next(tmp_path: Path) -> None:
    left = killed_run(tmp_path)
    assert left.is_dir()
    assert clean(tmp_path) == [left]
    assert list(tmp_path.iterdir()) == []


def test_a_live_run_is_left_alone(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert clean(tmp_path) == []
    assert run.path.is_dir()
    run.remove()


def test_a_directory_with_our_name_but_without_our_marker_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "kvspill-123-0123abcd"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("years of work")
    assert clean(tmp_path) == []
    assert (theirs / "thesis.txt").read_text() == "years of work"


def test_a_marker_with_other_content_is_not_ours(tmp_path: Path) -> None:
    theirs = tmp_path / "kvspill-123-0123abcd"
    theirs.mkdir()
    (theirs / MARKER).write_text("something else")
    assert clean(tmp_path) == []
    assert (theirs / MARKER).exists()


def test_a_symlink_with_our_name_is_neither_followed_nor_removed(tmp_path: Path) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    root.mkdir()
    left = killed_run(elsewhere)
    (root / left.name).symlink_to(left)
    assert clean(root) == []
    assert (left / "ab").is_dir()
    assert (root / left.name).is_symlink()


def test_a_symlink_inside_a_killed_run_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ("cd" * 16 + "-1")).write_text("mine")
    left = killed_run(tmp_path)
    (left / "cd").symlink_to(precious)
    assert clean(tmp_path) == []
    assert (precious / ("cd" * 16 + "-1")).read_text() == "mine"


def test_what_somebody_put_into_a_run_directory_stays_and_is_named(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.make_subdir("ab")
    (run.path / "ab" / "notes.npy").write_text("not the run's")
    (run.path / "ab" / ("ab" * 16 + "-1")).write_text("the run's")
    assert run.remove() == ["ab/notes.npy"]
    assert [path.name for path in (run.path / "ab").iterdir()] == ["notes.npy"]


def test_nested_subdirectories_go_with_the_run_and_what_is_not_its_own_stays(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for inner in ("abc/de", "abc/df", "abd/00"):
        run.make_subdir(inner)
        run.make_subdir(inner)
        (run.path / inner / ("ab" * 16 + "-1")).write_text("the run's")
    (run.path / "abc" / "df" / "notes.npy").write_text("not the run's")
    (run.path / "abc" / "de" / "ff").mkdir()
    assert sorted(run.remove()) == ["abc/de/ff", "abc/df/notes.npy"]
    assert not (run.path / "abd").exists()
    clean_run = RunDir(tmp_path)
    clean_run.make_subdir("0ab/cd")
    assert clean_run.remove() == []
    assert not clean_run.path.exists()


def test_other_files_beside_the_run_directory_are_untouched(tmp_path: Path) -> None:
    (tmp_path / "model.npy").write_text("theirs")
    killed_run(tmp_path)
    clean(tmp_path)
    RunDir(tmp_path).remove()
    assert [path.name for path in tmp_path.iterdir()] == ["model.npy"]


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_root_that_is_no_directory_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    if kind == "file":
        root.write_text("")
    for action in (RunDir, clean):
        with pytest.raises(UsageError, match="--cache-dir") as refusal:
            action(root)
        assert str(root) in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_what_took_the_name_of_a_moved_run_directory_is_left_alone(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.path.rename(tmp_path / "moved")
    run.path.mkdir()
    assert run.remove() == [f". (the directory was moved to {tmp_path / 'moved'}, empty now)"]
    assert sorted(tmp_path.iterdir()) == [run.path, tmp_path / "moved"]
