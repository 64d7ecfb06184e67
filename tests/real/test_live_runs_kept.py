"""A run that goes on is never cleaned by another process, whatever hides its lock or takes its marker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.storage.rundir import MARKER, clean

pytestmark = pytest.mark.real
ENTRY = "ab" * 16 + "-1"
LIVE = """
import os, sys
from pathlib import Path
from kvspill.storage.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
run.make_subdir("ab")
(run.path / "ab" / ("ab" * 16 + "-1")).write_bytes(b"data")
print(run.name, flush=True)
sys.stdin.read()
os._exit(9)
"""


@contextmanager
def live_run(root: Path) -> Iterator[tuple[str, int]]:
    """The name of a run directory and the process that goes on with it, killed in the end."""
    words = [sys.executable, "-c", LIVE, str(root)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid


@contextmanager
def overlay(where: Path) -> Iterator[dict[str, Path]]:
    """An overlay file system on directories of one disk."""
    parts = {name: where / name for name in ("lower", "upper", "work", "merged")}
    for path in parts.values():
        path.mkdir()
    # Relative, as container engines name them: no path of the mount table leads to the layers then.
    options = "lowerdir=lower,upperdir=upper,workdir=work"
    words = ["mount", "-t", "overlay", "overlay", "-o", options, "merged"]
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount an overlay here: {done.stderr.strip()}")
    try:
        yield parts
    finally:
        subprocess.run(["umount", str(parts["merged"])], check=True)


@pytest.mark.parametrize(
    ("runs_in", "cleaned_in", "marked"),
    [
        ("lower", "merged", True),
        ("upper", "merged", True),
        ("merged", "upper", True),
        ("merged", "upper", False),
    ],
)
def test_a_live_run_is_kept_across_the_layers_of_an_overlay(
    tmp_path: Path, runs_in: str, cleaned_in: str, marked: bool
) -> None:
    with overlay(tmp_path) as parts:
        with live_run(parts[runs_in]) as (name, _):
            if not marked:
                (parts[runs_in] / name / MARKER).unlink()
            root = parts[cleaned_in]
            assert clean(root) == []
            assert main(["clean", "--yes", str(root)]) == 0
            # Where the run is, the kernel may still show what is gone.
            assert os.listdir(root / name / "ab") == [ENTRY]
        assert main(["clean", "--yes", str(root)]) == 0
        assert os.listdir(root) == []


def test_a_live_run_whose_marker_was_deleted_is_kept_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_run(tmp_path) as (name, pid):
        (tmp_path / name / MARKER).unlink()
        for flags in ([], ["--yes"]):
            assert main(["clean", *flags, str(tmp_path)]) == 0
            said = capsys.readouterr().out
            assert f"left alone {tmp_path / name}: its run has not ended (process {pid})\n" in said
        assert (tmp_path / name / "ab" / ENTRY).read_bytes() == b"data"
    assert main(["clean", "--yes", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_live_run_whose_marker_was_replaced_is_kept(tmp_path: Path) -> None:
    with live_run(tmp_path) as (name, _):
        marker = tmp_path / name / MARKER
        text = marker.read_bytes()
        marker.unlink()
        marker.write_bytes(text)
        assert main(["clean", "--yes", str(tmp_path)]) == 0
        assert (tmp_path / name / "ab" / ENTRY).read_bytes() == b"data"
    assert clean(tmp_path) == [tmp_path / name]


def test_a_copy_of_a_live_run_on_the_same_disk_is_cleaned(tmp_path: Path) -> None:
    """One on the image of a disk is, too: see test_crash.py."""
    (tmp_path / "a").mkdir()
    with live_run(tmp_path / "a") as (name, _):
        subprocess.run(["cp", "-a", str(tmp_path / "a"), str(tmp_path / "b")], check=True)
        assert clean(tmp_path / "b") == [tmp_path / "b" / name]
