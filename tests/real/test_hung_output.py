"""A disk that hangs under the output takes no result with it: it is kept elsewhere, and the command ends."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from real.faulting import compiler, faults, faulty
from real.rig import SMALL_LOAD, left_over, wait_for_entries, wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults"),
]
LIMITED = (
    "import sys, kvspill.outputs; kvspill.outputs.WRITING_SECONDS_MAX = {seconds}; "
    "from kvspill.cli.main import main; sys.exit(main())"
)
SIMULATE = ("simulate", "--num-users", "1", "--max-requests", "3", "--generation-mode", "none")
END_SECONDS_MAX = 3.0


@contextmanager
def started(
    where: Path,
    command: Sequence[str],
    *,
    seconds: float,
    output: str = "o/r.json",
    verbs: Sequence[str] = ("sync",),
) -> Iterator["subprocess.Popen[str]"]:
    """A command under whose output such calls hang; writing is given up after so many seconds."""
    rule = ",".join(f"{verb}:hang:1" for verb in verbs)
    words = ["-c", LIMITED.format(seconds=seconds), *command, "--output", output]
    with faulty(where, rule, *words) as process:
        yield process


def check_kept_elsewhere(where: Path, out: str, err: str) -> None:
    """The summary was printed, and the result is whole in another place."""
    found = re.search(
        r"cannot write the result to o/r\.json: nothing came back within .*"
        r"; the result of this run is in ([^\s;]+)",
        err,
    )
    assert found is not None, err
    assert Path(found[1]).is_relative_to(where / "tmp")
    assert json.loads(Path(found[1]).read_text())["requests_completed"] > 0
    assert found[1] in out, "the summary names it"
    assert os.listdir(where / "o") == []


def test_a_simulation_whose_output_hangs_keeps_its_result_elsewhere_and_ends(tmp_path: Path) -> None:
    # A table for the same place is not waited for again.
    table = ("--xlsx-output", str(tmp_path / "o" / "r.csv"))
    with started(tmp_path, (*SIMULATE, *table), seconds=0.5) as process:
        wait_until(lambda: faults(tmp_path))
        began = time.monotonic()
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 0.5 + END_SECONDS_MAX
    assert process.returncode == 1
    check_kept_elsewhere(tmp_path, out, err)
    assert "r.csv: cannot be written (its disk hangs); name another file" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_the_first_signal_ends_a_run_whose_output_hangs(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "load.yaml").write_text(SMALL_LOAD)
    (tmp_path / "disk").mkdir()
    command = ("run", "--config", "load.yaml", "--cache-dir", "disk", "--max-requests", "10")
    with started(tmp_path, command, seconds=60) as process:
        wait_until(lambda: faults(tmp_path))
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < END_SECONDS_MAX
    assert process.returncode == 1
    check_kept_elsewhere(tmp_path, out, err)
    assert left_over(tmp_path / "disk") == []


def test_a_signal_during_the_load_leaves_an_output_that_hangs_a_moment(tmp_path: Path) -> None:
    (tmp_path / "load.yaml").write_text(SMALL_LOAD)
    (tmp_path / "disk").mkdir()
    command = ("run", "--config", "load.yaml", "--cache-dir", "disk", "--duration", "60")
    with started(tmp_path, command, seconds=60) as process:
        wait_for_entries(tmp_path / "disk")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < END_SECONDS_MAX
    assert process.returncode == 1
    check_kept_elsewhere(tmp_path, out, err)


@pytest.mark.parametrize(
    ("verb", "said"),
    [("sync", "nothing came back within 0.5"), ("write", "nothing could be written for 2 s")],
)
def test_a_trace_whose_disk_hangs_costs_no_result(tmp_path: Path, verb: str, said: str) -> None:
    command = (*SIMULATE, "--io-trace-log", "o/trace.csv")
    with started(tmp_path, command, seconds=0.5, output="r.json", verbs=(verb,)) as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said in err
    assert json.loads((tmp_path / "r.json").read_text())["requests_completed"] == 3
    assert os.listdir(tmp_path / "o") == []


def test_a_signal_ends_a_run_whose_log_hangs_and_says_that_rows_are_missing(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "load.yaml").write_text(SMALL_LOAD)
    cache_dir = tmp_path / "disk"
    cache_dir.mkdir()
    command = ("run", "--config", "load.yaml", "--cache-dir", "disk", "--duration", "60", "--quiet")
    log = ("--log-ops", "o/ops.parquet")
    with started(tmp_path, (*command, *log), seconds=60, output="r.json", verbs=("write",)) as process:
        wait_for_entries(cache_dir)
        wait_until(lambda: faults(tmp_path))
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert time.monotonic() - began < END_SECONDS_MAX
    assert process.returncode == 130
    assert re.search(r"warning: --log-ops o/ops.parquet: rows are missing \(nothing could be written", err), (
        err
    )
    assert json.loads((tmp_path / "r.json").read_text())["requests_completed"] > 0
