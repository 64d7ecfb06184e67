"""Run directories without a whole marker: never removed by themselves, offered by clean, removed if asked."""

import errno
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.errors import UsageError
from kvspill.storage.leftovers import leftovers, remove_leftover
from kvspill.storage.neighbours import neighbours
from kvspill.storage.rundir import MARKER, MARKER_TEXT, RunDir, clean

ENTRY = "ab" * 16 + "-1"


def left_by_a_crash(root: Path, marker: bytes | None = None) -> Path:
    left = root / "kvspill-123-0123abcd"
    left.mkdir(mode=0o700)
    (left / "ab").mkdir()
    (left / "ab" / ENTRY).write_bytes(b"x" * 100_000)
    if marker is not None:
        (left / MARKER).write_bytes(marker)
    return left


@pytest.mark.parametrize(
    "marker",
    [None, b"", MARKER_TEXT[:10], b"\0" * len(MARKER_TEXT)],
    ids=["missing", "empty", "cut", "zeros"],
)
def test_what_lost_its_marker_is_offered_with_its_size_and_removed_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], marker: bytes | None
) -> None:
    left = left_by_a_crash(tmp_path, marker)
    assert clean(tmp_path) == []
    assert main(["clean", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"found {left} \(10[04] KiB\): it has no marker", said)
    assert f"`kvspill clean --yes {tmp_path}` removes it" in said
    assert (left / "ab" / ENTRY).exists()
    assert main(["clean", "--yes", str(tmp_path)]) == 0
    assert f"removed {left}\n" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [(), (MARKER + ".new",)], ids=["empty", "marker in the making"])
def test_a_directory_of_a_run_killed_at_its_start_is_offered(
    tmp_path: Path, content: tuple[str, ...]
) -> None:
    left = tmp_path / "kvspill-123-0123abcd"
    left.mkdir(mode=0o700)
    for name in content:
        (left / name).write_text("")
    assert clean(tmp_path) == []
    (found,) = leftovers(tmp_path)
    assert (found.path, found.doubt) == (left, None)
    assert remove_leftover(found) == []
    assert not left.exists()


def test_nothing_in_doubt_is_ever_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = left_by_a_crash(tmp_path)
    (left / "ab" / "thesis.txt").write_text("years of work")
    assert main(["clean", str(tmp_path)]) == 0
    assert f"left alone {left}" in capsys.readouterr().out
    assert main(["clean", "--yes", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert f"left alone {left}" in said.out
    assert f"kvspill: error: {tmp_path}: 1 directory left alone, named above; look" in said.err
    assert (left / "ab" / ENTRY).exists()
    (left / "ab" / "thesis.txt").unlink()
    left.chmod(0o755)
    (found,) = leftovers(tmp_path)
    assert found.doubt == "its mode is 755, not 700"


def test_a_marker_with_other_content_is_somebody_elses(tmp_path: Path) -> None:
    left_by_a_crash(tmp_path, b"something else")
    assert leftovers(tmp_path) == []


def test_a_run_in_the_making_is_left_alone(tmp_path: Path) -> None:
    left_by_a_crash(tmp_path)
    (found,) = leftovers(tmp_path)
    maker = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(maker, fcntl.LOCK_SH)
        assert remove_leftover(found) == [". (a run is starting here; try again)"]
        assert found.path.is_dir()
    finally:
        os.close(maker)
    assert remove_leftover(found) == []


def test_what_another_clean_removed_meanwhile_is_no_failure(tmp_path: Path) -> None:
    left = left_by_a_crash(tmp_path)
    (found,) = leftovers(tmp_path)
    assert remove_leftover(found) == []
    assert remove_leftover(found) is None
    left_by_a_crash(tmp_path)
    other = os.open(left, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert remove_leftover(found) is None, "another is at it"
    finally:
        os.close(other)
    assert remove_leftover(found) == []


@pytest.mark.real
def test_directories_are_cleaned_by_four_at_once(tmp_path: Path) -> None:
    for number in range(3):
        for inner in range(64):
            folder = tmp_path / f"kvspill-99999{number}-deadbeef" / f"{inner:02x}"
            folder.mkdir(parents=True)
            folder.parent.chmod(0o700)
            for name in range(15):
                (folder / f"{name:032x}-1").touch()
    words = [sys.executable, "-m", "kvspill", "clean", "--yes", str(tmp_path)]
    started = [subprocess.Popen(words, stdout=-1, stderr=subprocess.STDOUT, text=True) for _ in range(4)]
    said = [(process.communicate(timeout=60)[0], process.returncode) for process in started]
    assert [code for _, code in said] == [0] * 4, said
    assert list(tmp_path.iterdir()) == []


def test_a_live_run_is_no_leftover(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert leftovers(tmp_path) == []
    run.remove()


def refuse_to_open(name: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refused(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == name:
            raise OSError(code, os.strerror(code))
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refused)


@pytest.mark.parametrize("words", [["clean"], ["clean", "--yes"]], ids=["asked", "all"])
def test_a_run_of_another_user_is_named_and_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Root alone can open it, so whose it is must be known without that."""
    theirs = left_by_a_crash(tmp_path, MARKER_TEXT)
    refuse_to_open(theirs.name, errno.EACCES, monkeypatch)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert main([*words, str(tmp_path)]) == 0
    assert f"left alone {theirs}: it belongs to another user" in capsys.readouterr().out
    assert (theirs / "ab" / ENTRY).exists()


def test_a_run_of_ones_own_that_cannot_be_opened_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = left_by_a_crash(tmp_path, MARKER_TEXT)
    refuse_to_open(own.name, errno.EIO, monkeypatch)
    assert main(["clean", str(tmp_path)]) == 1
    assert f"left alone {own}: it cannot be opened (Input/output error)" in capsys.readouterr().out


def test_a_run_that_ends_while_the_directory_is_looked_at_is_no_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = left_by_a_crash(tmp_path, MARKER_TEXT)
    refuse_to_open(own.name, errno.ENOENT, monkeypatch)
    assert main(["clean", str(tmp_path)]) == 0
    assert leftovers(tmp_path) == []


@contextmanager
def mounted(at: Path, *words: str) -> Iterator[None]:
    done = subprocess.run(["mount", *words, str(at)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


@pytest.mark.real
@pytest.mark.parametrize("bound", [False, True], ids=["another file system", "the same file system"])
@pytest.mark.parametrize("inside", ["ab", "."], ids=["inside", "the whole"])
def test_a_mount_at_a_stale_run_directory_is_not_crossed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: bool, inside: str
) -> None:
    root, foreign = tmp_path / "root", tmp_path / "foreign"
    root.mkdir()
    foreign.mkdir(mode=0o700)
    left = left_by_a_crash(root, MARKER_TEXT)
    words = ("--bind", str(foreign)) if bound else ("-t", "tmpfs", "-o", "mode=700", "none")
    with mounted(left / inside, *words):
        # What is there looks as a run's.
        (left / MARKER).write_bytes(MARKER_TEXT)
        (left / "ab").mkdir(exist_ok=True)
        (left / "ab" / ENTRY).write_text("precious")
        shown = "ab/" if inside == "ab" else "."
        assert clean(root) == [], "as the next run does by itself"
        assert main(["clean", str(root)]) == 1
        assert f"kept {left}/{shown} (something else is mounted there" in capsys.readouterr().out
        (left / MARKER).unlink()
        assert main(["clean", "--yes", str(root)]) == 1
        assert f"left alone {left} " in capsys.readouterr().out
        assert (left / "ab" / ENTRY).read_text() == "precious"
    assert main(["clean", "--yes", str(root)]) == 0
    assert list(root.iterdir()) == []


def test_a_run_directory_that_was_moved_is_said(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.make_subdir("ab")
    (run.path / "ab" / ENTRY).write_text("x")
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "moved"
    run.path.rename(moved)
    assert run.remove() == [f". (the directory was moved to {moved}, empty now)"]
    assert list(moved.iterdir()) == []


def test_the_marker_is_on_the_device_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss it must tell whose the files are."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    run = RunDir(tmp_path)
    assert synced == [os.stat(path).st_ino for path in (run.path / MARKER, run.path, tmp_path)]
    run.remove()


@pytest.mark.parametrize("failing", [1, 2, 3], ids=["the marker", "its directory", "the root"])
def test_a_run_whose_marker_may_be_lost_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    calls = []

    def fsync(fd: int) -> None:
        calls.append(fd)
        if len(calls) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    said = r"its marker could not be synced \(Input/output error\); .*--cache-dir"
    with pytest.raises(UsageError, match=said):
        RunDir(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_syncs_no_directory_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_fd: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fsync)
    assert RunDir(tmp_path).remove() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file immutable")
def test_a_run_whose_marker_is_immutable_stays_is_named_and_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = left_by_a_crash(tmp_path, MARKER_TEXT)
    if subprocess.run(["chattr", "+i", str(left / MARKER)], capture_output=True).returncode:
        pytest.skip("this file system has no immutable files")
    try:
        assert main(["clean", str(tmp_path)]) == 1
    finally:
        subprocess.run(["chattr", "-i", str(left / MARKER)], check=True)
    assert f"kept {left}/. (Operation not permitted)\n" in capsys.readouterr().out
    assert os.listdir(left) == [MARKER], "the rest of it is removed"
    assert main(["clean", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_run_whose_marker_cannot_be_opened_stays_is_named_and_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    left = left_by_a_crash(tmp_path, MARKER_TEXT)
    with monkeypatch.context() as patched:
        refuse_to_open(MARKER, code, patched)
        assert main(["clean", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert f"kept {left}/{MARKER} ({os.strerror(code)})\n" in printed.out
    assert "1 files of killed runs stay" in printed.err
    assert (left / "ab" / ENTRY).exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_stands_in_a_markers_place_is_named_left_alone_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    left = left_by_a_crash(tmp_path)
    make = {"pipe": os.mkfifo, "link": lambda path: os.symlink("/etc/passwd", path), "directory": os.mkdir}
    make[kind](left / MARKER)
    assert clean(tmp_path) == []
    assert [found for found in neighbours([tmp_path]) if found.pid is None] == []
    for words in (["clean"], ["clean", "--yes"]):
        main([*words, str(tmp_path)])
        assert f"left alone {left}: its {MARKER} is not a file" in capsys.readouterr().out
    assert (left / "ab" / ENTRY).exists()
