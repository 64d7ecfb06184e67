"""kill -9 at any moment: the next start leaves nothing of it, and no foreign file is ever touched."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real.killing import fingerprint, kill_runs, plant_foreign
from real.rig import left_over, run_dirs, start, wait_for_entries, wait_until

pytestmark = pytest.mark.real


def test_killed_at_random_moments_the_next_start_leaves_nothing_and_touches_nothing_foreign(
    tmp_path: Path,
) -> None:
    tally = kill_runs(4, seed=7, where=tmp_path)
    assert tally.killed_alive >= 1
    assert tally.left_after_the_next_start == 0
    assert tally.foreign_touched == 0


def test_clean_removes_what_a_kill_left_and_a_live_run_beside_it_is_not_disturbed(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir()
    foreign = plant_foreign(root)
    killed = start(tmp_path / "a", root, "--duration", "30", "--storage-capacity-gb", "0.06")
    wait_for_entries(root, 3)
    (killed_dir,) = set(run_dirs(root)) - FOREIGN_DIRS
    live = start(tmp_path / "b", root, "--duration", "4", "--storage-capacity-gb", "0.06")
    killed.send(signal.SIGKILL)
    killed.process.communicate()
    (live_dir,) = wait_for_another(root, killed_dir)
    command = [sys.executable, "-m", "kvspill.cli.main", "clean", str(root)]
    cleaned = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert cleaned.returncode == 0
    assert live_dir in run_dirs(root)
    assert killed_dir not in run_dirs(root)
    finished = live.finish()
    assert finished.code == 0
    assert finished.errors == {}
    wait_until(lambda: set(run_dirs(root)) == FOREIGN_DIRS)
    assert fingerprint(root) == foreign


FOREIGN_DIRS = {"kvspill-1-0123abcd", "kvspill-2-0123abcd", "kvspill-notes.txt", "kvspill-results"}


def wait_for_another(root: Any, killed_dir: Any) -> Any:
    return wait_until(lambda: set(run_dirs(root)) - FOREIGN_DIRS - {killed_dir})


def test_two_runs_in_one_directory_do_not_disturb_each_other(tmp_path: Path) -> None:
    runs = [
        start(tmp_path / name, tmp_path, "--duration", "1.5", "--storage-capacity-gb", "0.06")
        for name in ("a", "b")
    ]
    for finished in [run.finish() for run in runs]:
        assert finished.code == 0, finished.err
        assert finished.errors == {}
    assert left_over(tmp_path) == []
