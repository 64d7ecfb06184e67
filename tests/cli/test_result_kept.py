"""A result that was measured is not lost: not to a full disk, a missing right or a run of the same second."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli import measuring
from kvspill.cli.main import main
from kvspill.errors import KvspillError
from kvspill.measure.iotrace import IoTrace
from kvspill.outputs import write_whole
from kvspill.run.runner import run_trials

RUN = ["simulate", "--max-requests", "3", "--num-users", "1", "--generation-mode", "none", "--quiet"]


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring, "run_trials", lambda *_: pytest.fail("it was measured"))
    (tmp_path / "file").write_text("x")
    assert main([*RUN, "--output", str(tmp_path)]) == 2
    assert main([*RUN, "--output", str(tmp_path / "file" / "r.json")]) == 2
    assert "is not a directory; name a file in a writable directory" in capsys.readouterr().err


def test_a_result_whose_place_became_unwritable_is_kept_elsewhere_and_the_error_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tmp_path / "out"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    real_run = run_trials

    def run_then_fill(*arguments: Any) -> Any:
        result = real_run(*arguments)
        full.write_text("a file where the directory should be made")
        return result

    monkeypatch.setattr(measuring, "run_trials", run_then_fill)
    assert main([*RUN, "--output", str(full / "r.json")]) == 1
    line = capsys.readouterr().err
    kept = re.search(r"the result of this run is in (\S+)", line)
    assert kept is not None, line
    assert json.loads(Path(kept[1]).read_text())["requests_completed"] == 3


@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_of_runs_with_the_same_output_at_the_same_time_none_loses_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    output, real_run, runs = tmp_path / "r.json", run_trials, 0
    if there:
        output.write_text("of last week")

    def run_while_another_ends(*arguments: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
            assert main([*RUN, "--seed", "2", "--output", str(output)]) == 0
        return real_run(*arguments)

    monkeypatch.setattr(measuring, "run_trials", run_while_another_ends)
    assert main([*RUN, "--seed", "1", "--output", str(output)]) == 1
    own = tmp_path / "r-2.json"
    assert f"--output {output}: another program has written it since" in (said := capsys.readouterr().err)
    assert f"the result of this run is in {own}" in said
    assert [json.loads(path.read_text())["seed"] for path in (output, own)] == [2, 1]
    assert main([*RUN, "--seed", "3", "--output", str(output)]) == 0
    assert json.loads(output.read_text())["seed"] == 3


@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
def test_a_result_that_another_run_wrote_a_moment_before_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], link: bool
) -> None:
    """Both had found the file of last week there when they began to write."""
    output, real, calls = tmp_path / "r.json", os.fsync, iter([True])
    output.write_text("of last week")
    if link:
        (tmp_path / "latest.json").symlink_to("r.json")

    def fsync_while_another_ends(fd: int) -> None:
        real(fd)
        if next(calls, False):
            write_whole(output, "of another run")

    monkeypatch.setattr(os, "fsync", fsync_while_another_ends)
    named = tmp_path / "latest.json" if link else output
    assert main([*RUN, "--output", str(named)]) == 1
    assert output.read_text() == "of another run"
    own = tmp_path / "r-2.json"
    assert f"the result of this run is in {own}" in capsys.readouterr().err
    assert json.loads(own.read_text())["requests_completed"] == 3


@pytest.mark.parametrize(
    ("looks", "said"),
    [("refusals.is_stream", "cannot be written"), ("turns.stamp_of", "cannot be reached")],
)
def test_an_output_whose_disk_does_not_answer_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], looks: str, said: str
) -> None:
    back = threading.Event()
    for module in ("refusals", "turns"):
        monkeypatch.setattr(f"kvspill.{module}.WRITING_SECONDS_MAX", 0.05)
    monkeypatch.setattr(f"kvspill.{looks}", lambda _path: back.wait(3))
    try:
        assert main([*RUN, "--output", str(tmp_path / "r.json")]) == 2
    finally:
        back.set()
    assert f"{said} (nothing came back within 0.05 s); name a file" in capsys.readouterr().err


def test_two_runs_of_the_same_second_both_keep_their_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        measuring, "result_path", lambda _config: Path("kvspill-results/20260101-000000-m.json")
    )
    for _ in range(3):
        assert main(RUN) == 0
    names = sorted(os.listdir(tmp_path / "kvspill-results"))
    assert names == [f"20260101-000000-m{more}.json" for more in ("-2", "-3", "")]


def test_runs_at_the_same_moment_each_keep_their_result(tmp_path: Path) -> None:
    """Real processes: names are taken, not looked for."""
    command = [sys.executable, "-m", "kvspill", *RUN]
    running = [subprocess.Popen(command, cwd=tmp_path) for _ in range(4)]
    assert [run.wait(60) for run in running] == [0] * 4
    kept = sorted((tmp_path / "kvspill-results").iterdir())
    assert len(kept) == 4, kept
    assert all(json.loads(path.read_text())["requests_completed"] == 3 for path in kept)


def test_a_log_that_fails_leaves_result_summary_and_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    # A link is followed where the user names it; one trial alone has the very name.
    (tmp_path / "ops.parquet").symlink_to("/dev/full")
    run = [word for word in RUN if word != "--quiet"]
    output = tmp_path / "r.json"
    assert main([*run, "--output", str(output), "--log-ops", str(tmp_path / "ops.parquet")]) == 1
    captured = capsys.readouterr()
    assert "rows are missing (No space left on device)" in captured.err.splitlines()[-1]
    assert str(output) in captured.out
    result = json.loads(output.read_text())
    assert result["requests_completed"] == 3
    assert not result["faulty"]
    assert "op_log_failed" in [item["code"] for item in result["warnings"]]


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.zst"])
def test_a_trace_that_fails_leaves_result_summary_and_a_warning(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.endswith(".zst"):
        pytest.importorskip("zstandard")
    trace, output = tmp_path / name, tmp_path / "r.json"
    trace.symlink_to("/dev/full")
    run = [word for word in RUN if word != "--quiet"]
    assert main([*run, "--output", str(output), "--io-trace-log", str(trace)]) == 1
    captured = capsys.readouterr()
    lost = f"--io-trace-log {trace}: rows are missing (No space left on device)"
    assert lost in captured.err.splitlines()[-1]
    assert str(output) in captured.out
    result = json.loads(output.read_text())
    assert result["requests_completed"] == 3
    assert not result["faulty"]
    assert "op_log_failed" in [item["code"] for item in result["warnings"]]


def test_a_trace_gets_its_name_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that breaks off leaves the trace of the run before, and no part of its own."""
    trace = tmp_path / "trace.csv"
    trace.write_text("of the run before")
    run = [*RUN, "--output", str(tmp_path / "r.json"), "--io-trace-log", str(trace)]

    def broken(*_arguments: object) -> None:
        assert trace.read_text() == "of the run before"
        raise KvspillError("broken off")

    with monkeypatch.context() as patch:
        patch.setattr(IoTrace, "op", broken)
        assert main(run) != 0
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]
    assert trace.read_text() == "of the run before"
    assert main(run) == 0
    assert trace.read_text().startswith("Timestamp,Operation,")


@pytest.mark.parametrize("name", ["m" * 300, "../../../outside", "a/b c", ".."])
def test_a_models_name_decides_no_directory_and_is_never_too_long(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    own = {name: {"layers": 2, "kv_heads": 2, "head_dim": 64}}
    (here / "own.yaml").write_text(json.dumps({"model": name, "models": own}))
    assert main([*RUN, "--config", "own.yaml"]) == 0
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "own.yaml"]
    assert [path.parent for path in kept] == [here / "kvspill-results"]
    assert json.loads(kept[0].read_text())["config"]["model"] == name


def test_a_table_that_cannot_be_written_leaves_result_and_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [word for word in RUN if word != "--quiet"]
    (tmp_path / "t.csv").symlink_to("/dev/full")
    assert main([*run, "--output", str(tmp_path / "r.json"), "--xlsx-output", str(tmp_path / "t.csv")]) == 1
    captured = capsys.readouterr()
    assert "No space left" in captured.err
    assert str(tmp_path / "r.json") in captured.out
    assert (tmp_path / "r.json").exists()


def test_a_workbook_without_room_for_its_temporary_files_leaves_result_and_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was an internal error, and no summary was printed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    files = ["--output", str(tmp_path / "r.json"), "--xlsx-output", str(tmp_path / "t.xlsx")]
    assert main([*RUN[:-1], *files]) == 1
    captured = capsys.readouterr()
    assert "t.xlsx: no room for temporary files (No such file or directory); set TMPDIR" in captured.err
    assert f"All figures (--verbose prints them):\n  {tmp_path / 'r.json'}" in captured.out
    assert json.loads((tmp_path / "r.json").read_text())["requests_completed"] == 3


def test_a_result_that_no_place_takes_is_printed_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for writer in ("result.result.write_whole", "spare.write_whole", "turns.write_new"):
        monkeypatch.setattr(f"kvspill.{writer}", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = [word for word in RUN if word != "--quiet"]
    assert main([*run, "--output", str(tmp_path / "r.json")]) == 1
    captured = capsys.readouterr()
    assert "no other place takes the result of this run either" in captured.err
    assert "tok/s" in captured.out
    assert list(tmp_path.iterdir()) == []


def test_a_signal_after_the_load_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_run = run_trials

    def run_then_signal(*arguments: Any) -> Any:
        result = real_run(*arguments)
        signal.raise_signal(signal.SIGTERM)
        return result

    monkeypatch.setattr(measuring, "run_trials", run_then_signal)
    assert main([*RUN, "--output", str(tmp_path / "r.json")]) == 130
    assert json.loads((tmp_path / "r.json").read_text())["requests_completed"] == 3


def test_every_trial_keeps_its_own_log_of_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each trial wrote over the rows of the one before."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    assert main([*RUN, "--trials", "2", "--log-ops", "ops.parquet", "--output", "r.json"]) == 0
    names = [f"ops-trial{number}{part}.parquet" for number in (1, 2) for part in ("", "-requests")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "r.json"])
    assert [parquet.read_table(name).num_rows for name in names if "requests" in name] == [3, 3]
    rows = [parquet.read_table(name).num_rows for name in names if "requests" not in name]
    assert rows[0] == rows[1] > 0
    (tmp_path / "x-trial2.parquet").write_text("a recording")
    lost = ["--trace", "mooncake:x-trial2.parquet", "--log-ops", "x.parquet"]
    assert main([*RUN, "--trials", "2", *lost]) == 2
    assert "--log-ops x.parquet: its x-trial2.parquet: is one of the inputs" in capsys.readouterr().err
