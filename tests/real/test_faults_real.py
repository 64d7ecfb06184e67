"""Real faults under a real run: each is counted by its kind, costs the request and not the run (C3, S5)."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from real.rig import entries, file_system, left_over, start, wait_for_entries, wait_until

pytestmark = pytest.mark.real

MIB = 1 << 20
RUN = ("--duration", "1.5", "--storage-capacity-gb", "0.06", "--max-errors", "1000000")


def clean(directory: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kvspill.cli.main", "clean", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


def fill(path: Path) -> None:
    """Somebody else's file takes all the space that there is."""
    with path.open("wb", buffering=0) as file:
        for nbytes in (MIB, 4096):
            try:
                while True:
                    file.write(b"x" * nbytes)
            except OSError:
                continue


def loop_device(mount_point: Path) -> str:
    found = subprocess.run(
        ["findmnt", "-no", "SOURCE", str(mount_point)], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def unmount(mount_point: Path, image: Path) -> None:
    """Wholly: what anybody holds for a moment more the next mount would find again, read-only."""
    wait_until(lambda: subprocess.run(["umount", str(mount_point)], capture_output=True).returncode == 0)
    wait_until(lambda: not subprocess.run(["losetup", "-j", str(image)], capture_output=True).stdout)


def make_read_only(mount_point: Path) -> None:
    """As a kernel does that has found its file system damaged: at once, with files open."""
    trigger = Path("/sys/fs/ext4") / Path(loop_device(mount_point)).name / "trigger_fs_error"
    if not trigger.exists():
        pytest.skip("this kernel cannot be told to find an error")
    trigger.write_text("1")


def check_survived(finished: Any) -> None:
    """The run went to its end and said what failed."""
    assert finished.code == 1, finished.err
    assert "the result is faulty and is not ranked: " in finished.err
    result = finished.result
    assert result["incomplete"] is False
    assert result["faulty"] is True
    requests = result["honesty"]["requests"]
    parts = sum(requests[name] for name in ("completed", "failed", "shed", "unfinished"))
    assert requests["arrived"] == parts
    assert {"failed_requests", "errors"} <= {warning["code"] for warning in result["warnings"]}


def test_a_disk_that_fills_up_costs_requests(tmp_path: Path) -> None:
    with file_system(tmp_path, "ext4", 128 * MIB) as root:
        run = start(tmp_path, root, *RUN)
        wait_for_entries(root, 5)
        fill(root / "somebody elses")
        nbytes = (root / "somebody elses").stat().st_size
        finished = run.finish()
        check_survived(finished)
        assert finished.errors["write ENOSPC"] > 0
        assert left_over(root) == []
        assert (root / "somebody elses").stat().st_size == nbytes


def test_a_file_system_gone_read_only_costs_requests_and_keeps_the_result(tmp_path: Path) -> None:
    with file_system(tmp_path, "ext4", 128 * MIB, ",errors=remount-ro") as root:
        # Long enough that the load is still on, however late a busy machine gets to it.
        run = start(tmp_path, root, *RUN, "--duration", "4")
        wait_for_entries(root, 5)
        make_read_only(root)
        finished = run.finish()
        check_survived(finished)
        assert finished.errors["write EROFS"] > 0
        assert "Not removed at the end" in finished.err
        assert "left_behind" in {warning["code"] for warning in finished.result["warnings"]}
        refused = clean(root)
        assert refused.returncode == 1
        assert "stay, named above; make the file system writable" in refused.stderr
        unmount(root, tmp_path / "image")
    subprocess.run(["mount", "-o", "loop", str(tmp_path / "image"), str(tmp_path / "mnt")], check=True)
    try:
        assert clean(tmp_path / "mnt").returncode == 0
        assert left_over(tmp_path / "mnt") == []
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "mnt")], check=True)


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_what_cannot_be_removed_is_said_also_in_quiet_and_the_run_has_failed(
    tmp_path: Path, number: signal.Signals | None
) -> None:
    """The figures stand; but nobody reads the warnings of a result whose exit status is 0."""
    run = start(tmp_path, tmp_path, *RUN, "--quiet")
    theirs = wait_for_entries(tmp_path, 5)[0].with_name("somebody elses")
    theirs.write_text("x")
    if number is not None:
        run.send(number)
    finished = run.finish()
    assert finished.code == (1 if number is None else 130)
    assert "Not removed at the end: " in finished.err
    assert finished.result["faulty"] is False
    assert theirs.read_text() == "x"


def test_a_failing_device_is_eio_and_costs_requests(tmp_path: Path) -> None:
    with file_system(tmp_path, "ext4", 128 * MIB, ",errors=continue") as root:
        run = start(tmp_path, root, *RUN)
        wait_for_entries(root, 5)
        os.truncate(tmp_path / "image", 16 * MIB)
        subprocess.run(["losetup", "-c", loop_device(root)], check=True)
        finished = run.finish()
        check_survived(finished)
        assert any(name.endswith("EIO") for name in finished.errors)


def test_an_unmounted_directory_costs_nothing_that_was_open_and_nothing_is_left_on_the_device(
    tmp_path: Path,
) -> None:
    with file_system(tmp_path, "ext4", 128 * MIB) as root:
        run = start(tmp_path, root, *RUN)
        wait_for_entries(root, 5)
        subprocess.run(["umount", "-l", str(root)], check=True)
        finished = run.finish()
        assert finished.code == 0, finished.err
        assert left_over(root) == []
        subprocess.run(["mount", "-o", "loop", str(tmp_path / "image"), str(root)], check=True)
        assert left_over(root) == []


def test_too_few_descriptors_are_emfile_and_the_clean_up_still_works(tmp_path: Path) -> None:
    run = start(tmp_path, tmp_path, *RUN)
    wait_for_entries(tmp_path, 5)
    in_use = [path for path in Path(f"/proc/{run.process.pid}/fd").iterdir() if not points_to_entry(path)]
    before = resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE, (len(in_use) + 1, before[1]))
    finished = run.finish()
    check_survived(finished)
    assert finished.errors["read EMFILE"] + finished.errors.get("write EMFILE", 0) > 0
    assert left_over(tmp_path) == []


def points_to_entry(descriptor: Path) -> bool:
    try:
        return Path(os.readlink(descriptor)).parent.parent.name.startswith("kvspill-")
    except FileNotFoundError:
        return True


def test_files_that_vanish_shrink_or_change_underneath_are_told_apart_and_never_hits(tmp_path: Path) -> None:
    run = start(tmp_path, tmp_path, *RUN)
    spoiled = 0
    deadline = time.monotonic() + 10
    while run.process.poll() is None and time.monotonic() < deadline:
        for number, path in enumerate(entries(tmp_path)):
            try:
                SABOTAGE[number % len(SABOTAGE)](path)
                spoiled += 1
            except FileNotFoundError:
                continue
        time.sleep(0.02)
    finished = run.finish()
    assert spoiled > 20
    check_survived(finished)
    assert {"read ENOENT", "read short_read"} <= set(finished.errors)
    assert {"read torn", "read corrupt"} & set(finished.errors)
    assert left_over(tmp_path) == []


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 8192)


SABOTAGE = (Path.unlink, lambda path: os.truncate(path, 4096), overwrite)


@pytest.mark.parametrize("spare_kib", [64, 1024])
def test_memory_pressure_is_enomem_or_one_clear_line_and_nothing_is_left(
    tmp_path: Path, spare_kib: int
) -> None:
    run = start(tmp_path, tmp_path, *RUN)
    wait_for_entries(tmp_path, 1)
    pages = int(Path(f"/proc/{run.process.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + spare_kib * 1024
    resource.prlimit(run.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    finished = run.finish()
    if finished.result is not None and not finished.result["incomplete"]:
        assert finished.code == (1 if finished.result["faulty"] else 0)
        assert {name.split()[1] for name in finished.errors} <= {"ENOMEM"}
    else:
        assert finished.code == 1
        assert "out of memory" in finished.err or "can't start new thread" in finished.err
    assert left_over(tmp_path) == []


def test_too_many_errors_end_the_run_with_the_reason(tmp_path: Path) -> None:
    with file_system(tmp_path, "ext4", 128 * MIB) as root:
        run = start(tmp_path, root, "--duration", "60", "--storage-capacity-gb", "0.06", "--max-errors", "25")
        wait_for_entries(root, 5)
        fill(root / "somebody elses")
        finished = run.finish()
        assert finished.code == 1
        assert finished.result["incomplete"] is True
        assert "26 operations failed (storage write ENOSPC: 26), --max-errors is 25" in finished.err
        assert left_over(root) == []
