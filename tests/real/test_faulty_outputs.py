"""A disk that fails under what a command writes costs no result and leaves nothing behind."""

import contextlib
import errno
import json
import os
import re
import signal
import time
from itertools import count
from pathlib import Path

import pytest

from real.faulting import compiler, faults, faulty
from real.rig import wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults"),
]
MAIN = ("-m", "kvspill.cli.main")
FULL = f"write:fail:1:{errno.ENOSPC}"
GIB = 1 << 30
SMALL = ("--num-users", "1", "--max-requests", "3", "--generation-mode", "none")


RUN = ("run", *SMALL, "--model", "tiny-1b", "--duration", "1", "--cpu-mem-gb", "0", "--output", "r.json")
COMMANDS = {
    "run": (*RUN, "--cache-dir", "o"),
    "doctor": ("doctor", "--cache-dir", "o"),
    "clean": ("clean", "--yes", "o"),
    "simulate": ("simulate", *SMALL, "--output", "o/r.json"),
    "slots": (*RUN, "--cache-dir", "o", "--layout", "slots"),
}
EARLIER = (("run", "path", 7), ("run", "path", 25), ("simulate", "path", 17))
"""Some of the calls whose failure ended in an internal error, or left something behind."""
SHARES = {"run path": 8, "slots path": 8, "run close": 2}
"""Tests by which the calls are divided where these are many."""
MAY_END_WELL = {
    "run path": "mounts, free space and neighbours that are not known are done without",
    "run close": "a lock or a directory holds no data",
    "slots path": "as of run",
    "slots close": "as of run",
    "simulate path": "whether something stands there already, and whether it is a link, is not vital",
    "doctor path": "it finds nothing wrong with a place of which it cannot tell what it is",
}
"""Commands whose exit code may be 0 though one of their calls has failed, and why."""


def check_one_fault(where: Path, name: str, verb: str, number: int, patch: pytest.MonkeyPatch) -> bool:
    """Run the command with that one of its calls failing; False where it makes no such call."""
    patch.setenv("KVSPILL_SHIM_NTH", str(number))
    which = f"call {number}"
    with faulty(where, f"{verb}:fail:1:{errno.EIO}", *MAIN, *COMMANDS[name]) as process:
        _, err = process.communicate(timeout=60)
    if not faults(where):
        return False
    assert "internal error" not in err, which
    assert "Traceback" not in err, which
    if "are removed in the background" in err:
        wait_until(lambda: not left_in(where))
    left, code = left_in(where), process.returncode
    assert code in (0, 1, 2), which
    assert code or f"{name} {verb}" in MAY_END_WELL, which
    if left:
        assert code == 1, f"{which}: {left} {err}"
        assert name == "doctor" or f"Not removed at the end: {where}/o/{left[0]}" in err, which
    if code == 0 and name != "doctor":
        result = json.loads((where / ("o/r.json" if name == "simulate" else "r.json")).read_text())
        assert not result["faulty"], which
        assert result["requests_completed"] > 0, which
    return True


def left_in(where: Path) -> list[str]:
    return [entry for entry in os.listdir(where / "o") if entry != "r.json"]


@pytest.mark.parametrize(("name", "verb", "number"), EARLIER)
def test_a_call_that_fails_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, verb: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_one_fault(tmp_path, name, verb, number, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "verb", "first"),
    [
        (name, verb, first)
        for name in COMMANDS
        for verb in ("path", "close")
        for first in range(1, 1 + SHARES.get(f"{name} {verb}", 1))
    ],
)
def test_every_call_that_fails_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, verb: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them in a run of its own, until there are no more."""
    for number in count(first, SHARES.get(f"{name} {verb}", 1)):
        where = tmp_path / str(number)
        where.mkdir()
        if not check_one_fault(where, name, verb, number, monkeypatch):
            break
    assert number > first, "it makes no such call at all"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_no_directory_of_the_doctor(tmp_path: Path, number: signal.Signals) -> None:
    with faulty(tmp_path, "sync:delay:1:20", *MAIN, "doctor", "--cache-dir", "o") as process:
        wait_until(lambda: faults(tmp_path))
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert os.listdir(tmp_path / "o") == []


def test_a_curve_that_the_disk_does_not_take_is_kept_elsewhere(tmp_path: Path) -> None:
    command = ("curve", *SMALL, "--quiet", "--output", "o/c.json", "--page", "o/c.html")
    with faulty(tmp_path, FULL, *MAIN, *command) as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    curve = re.search(r"--output o/c.json: cannot be written .*; the curve is in ([^;]+);", err)
    page = re.search(r"--page o/c.html: cannot be written .*; the page is in (\S+)", err)
    assert curve is not None, err
    assert page is not None, err
    assert json.loads(Path(curve[1]).read_text())["kvspill_curve"] == 1
    assert "<html" in Path(page[1]).read_text()
    assert os.listdir(tmp_path / "o") == []


def test_an_output_whose_trial_cannot_be_closed_leaves_nothing(tmp_path: Path) -> None:
    command = ("simulate", *SMALL, "--output", "o/r.json")
    with faulty(tmp_path, f"close:fail:1:{errno.EIO}", *MAIN, *command) as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "o takes no file (Input/output error)" in err
    assert os.listdir(tmp_path / "o") == []


def test_logs_that_the_disk_does_not_take_leave_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    logs = ("--log-ops", "o/o.parquet", "--io-trace-log", "o/t.csv")
    with faulty(tmp_path, FULL, *MAIN, "simulate", *SMALL, "--quiet", "--output", "r.json", *logs) as process:
        process.communicate(timeout=30)
    assert process.returncode == 1
    warnings = json.loads((tmp_path / "r.json").read_text())["warnings"]
    assert [item["code"] for item in warnings].count("op_log_failed") == 2
    assert os.listdir(tmp_path / "o") == []


def test_a_signal_ends_a_suite_whose_files_cannot_be_closed(tmp_path: Path) -> None:
    command = ("suite", "--quick", "--model", "tiny-1b", "--simulate", "-w", "storage-only")
    with faulty(tmp_path, "close:hang:1", *MAIN, *command, "--output-dir", "o/s") as process:
        wait_until(lambda: faults(tmp_path))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=8)
    assert process.returncode in (1, 130)


@pytest.mark.slow
def test_a_signal_ends_a_plan_whose_disk_hangs_and_leaves_nothing(tmp_path: Path) -> None:
    """The profiles that it simulates stayed in the temporary directory."""
    words = (
        "--model tiny-1b --slo-target-ms 200 --generation-mode fast --duration 8 --users 4 --quick --quiet"
    )
    command = ("plan", *words.split(), "--option", "nvme-gen5", "--output", "o/p.json")
    with faulty(tmp_path, "write:hang:1", *MAIN, *command) as process:
        wait_until(lambda: faults(tmp_path))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=8)
    assert process.returncode == 130
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.parametrize("layout", ["files", "tree", "buckets"])
def test_files_that_cannot_be_closed_take_no_more_than_the_capacity_and_leave_nothing(
    tmp_path: Path, layout: str
) -> None:
    """Half of all closes fail: each write that failed kept its file, whose room was given out again."""
    assert 0 < most_stored(tmp_path, f"close:fail:0.5:{errno.EIO}", layout) <= 1.1 * CAPACITY_BYTES
    assert os.listdir(tmp_path / "o") == []


@pytest.mark.parametrize("layout", ["files", "buckets"])
def test_failed_writes_that_cannot_be_removed_take_no_more_than_the_capacity(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room of each was given out again, although its file was there."""
    monkeypatch.setenv("KVSPILL_SHIM_WHEN", str(tmp_path / "armed"))
    rule = f"close:fail:0.5:{errno.EIO},unlink:fail:1:{errno.EIO}"
    most = most_stored(tmp_path, rule, layout, armed=tmp_path / "armed")
    assert CAPACITY_BYTES / 3 < most <= 1.1 * CAPACITY_BYTES


CAPACITY_BYTES = GIB // 5


def most_stored(where: Path, rule: str, layout: str, armed: Path | None = None) -> int:
    """What a run under that rule has on the disk at its peak; armed is made once there are entries."""
    words = ("--num-users", "8", "--model", "tiny-1b", "--generation-mode", "none", "--max-errors", "1000000")
    sizes = ("--duration", "2", "--cpu-mem-gb", "0", "--storage-capacity-gb", "0.2", "--layout", layout)
    command = ("run", *words, *sizes, "--quiet", "--output", "r.json", "--cache-dir", "o")
    most = 0
    with faulty(where, rule, *MAIN, *command) as process:
        while process.poll() is None:
            most = max(most, stored_in(where / "o"))
            if armed is not None and most > CAPACITY_BYTES / 3:
                armed.touch()
            time.sleep(0.02)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1, err
    assert "internal error" not in err
    return most


def stored_in(where: Path) -> int:
    nbytes = 0
    for around, _, names in os.walk(where):
        for name in names:
            # It may have been removed since it was listed.
            with contextlib.suppress(OSError):
                nbytes += os.stat(os.path.join(around, name)).st_blocks * 512
    return nbytes
