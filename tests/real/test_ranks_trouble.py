"""Ranks that fail, hang, are killed or never start: all end, and the result says which it was (R4)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from real.mpi import KVSPILL, MPIRUN, NEEDS_MPI, process_of, ranks, said
from real.rig import file_system, left_over, run_dirs, start, wait_until

pytestmark = NEEDS_MPI
BOUND_SECONDS = 3


def test_a_rank_that_hangs_is_named_after_the_bound_r4(tmp_path: Path) -> None:
    run = ranks(2, tmp_path, "--duration", "30", "--ranks-timeout", str(BOUND_SECONDS))
    wait_until(lambda: len(run_dirs(tmp_path / "cache")) == 2)
    victim = wait_until(lambda: process_of(run, 1))
    time.sleep(1.5)
    stopped = time.monotonic()
    os.kill(victim, signal.SIGSTOP)
    finished = run.finish()
    assert time.monotonic() - stopped < BOUND_SECONDS + 12
    assert finished.code == 1
    assert finished.result["incomplete"]
    assert finished.result["interrupted"].startswith("rank 1 on ")
    assert "has not answered for 3 s" in finished.result["interrupted"]
    assert [bool(row["problem"]) for row in finished.result["ranks"]["rows"]] == [True, True]
    assert len(said(finished)) == 1
    # What the rank that was ended could not remove, the next start does.
    again = ranks(2, tmp_path, "--max-requests", "6").finish(60.0)
    assert again.code == 0, again.err
    assert left_over(tmp_path / "cache") == []


def test_what_is_left_of_a_job_whose_rank_was_killed_is_kept_and_cleaned_up_r4(tmp_path: Path) -> None:
    run = ranks(2, tmp_path, "--duration", "30", "--ranks-timeout", "20")
    wait_until(lambda: len(run_dirs(tmp_path / "cache")) == 2)
    victim = wait_until(lambda: process_of(run, 1))
    time.sleep(2.0)
    os.kill(victim, signal.SIGKILL)
    finished = run.finish()
    assert finished.code != 0
    if finished.result is not None:
        # The launcher may be quicker than the second that it leaves its ranks.
        assert finished.result["incomplete"]
        assert "rank 1 on " in finished.result["interrupted"]
    assert left_over(tmp_path / "cache", 5.0) == []


def test_a_rank_that_never_starts_is_named_after_the_bound_r4(tmp_path: Path) -> None:
    words = [MPIRUN, "-n", "1", *KVSPILL, "run", "--ranks-timeout", str(BOUND_SECONDS), ":", "-n", "1"]
    begun = time.monotonic()
    found = subprocess.run(
        [*words, "sleep", "60"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50
    )
    assert time.monotonic() - begun < 30
    assert found.returncode == 1
    assert "rank 1 has not started within 3 s" in found.stderr
    assert not (tmp_path / "kvspill-results").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make file systems")
def test_a_rank_whose_disk_is_full_ends_all_on_time_and_is_named_r4(tmp_path: Path) -> None:
    (tmp_path / "disk0" / "mnt").mkdir(parents=True)
    with file_system(tmp_path / "disk1", "tmpfs", 40 << 20) as full:
        flags = ("--max-errors", "20", "--duration", "8", "--storage-capacity-gb", "0.03")
        run = ranks(2, tmp_path, *flags, cache=tmp_path / "disk{rank}" / "mnt")
        wait_until(lambda: run_dirs(full))
        fill(full / "more")
        finished = run.finish()
        assert finished.code == 1, finished.err
        assert finished.result["faulty"]
        assert finished.result["interrupted"].startswith("rank 1 on ")
        assert "ENOSPC" in finished.result["interrupted"]
        first, second = finished.result["ranks"]["rows"]
        assert (first["requests_failed"], second["requests_failed"] > 0) == (0, True)
        assert left_over(full) == []


def fill(path: Path) -> None:
    """Write a file until there is no room for more."""
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as more:
        while True:
            more.write(bytes(1 << 16))


def test_different_commands_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    words = [*KVSPILL, "run", "--cache-dir", str(tmp_path / "cache")]
    found = subprocess.run(
        [MPIRUN, "-n", "1", *words, "--seed", "1", ":", "-n", "1", *words, "--seed", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert "--seed: 2 on rank 1 on " in found.stderr


def test_a_rank_without_its_directory_ends_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "disk0").mkdir()
    finished = ranks(2, tmp_path, "--max-requests", "5", cache=tmp_path / "disk{rank}").finish(60.0)
    assert finished.code == 2
    assert len(said(finished)) == 1
    assert "rank 1 on " in said(finished)[0]
    assert "mkdir -p" in said(finished)[0]
    assert run_dirs(tmp_path / "disk0") == []


OFTEN = (
    "import kvspill.run.ranks.several; kvspill.run.ranks.several.CHECKPOINT_SECONDS = 2.0; "
    "from kvspill.cli.main import main; raise SystemExit(main())"
)


def test_a_checkpoint_stands_for_a_result_until_there_is_one_r4(tmp_path: Path) -> None:
    run = ranks(2, tmp_path, "--duration", "5", program=(sys.executable, "-c", OFTEN))
    kept = tmp_path / "result.incomplete.json"
    wait_until(kept.exists, 40.0)
    so_far = json.loads(kept.read_text())
    assert so_far["incomplete"]
    assert [row["rank"] for row in so_far["ranks"]["rows"]] == [0, 1]
    assert so_far["requests_completed"] > 0
    finished = run.finish(60.0)
    assert finished.code == 0, finished.err
    assert f"the last checkpoint stays: {kept}\n" in finished.err
    assert not kept.exists()
    assert finished.result["requests_completed"] > so_far["requests_completed"]


def test_more_ranks_than_users_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    under = (MPIRUN, "-n", "3")
    finished = start(tmp_path, tmp_path / "cache", "--num-users", "2", under=under).finish(60.0)
    assert finished.code == 2
    assert "fewer than the 3 ranks" in said(finished)[0]
