"""`kvspill suite` from the command line: scenarios, resume after a kill, the table and the advice."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.suite.scenario import builtins, default_names
from real.rig import wait_until

SMALL = ["--simulate", "--quick", "--users", "3", "--high-users", "4", "--model", "tiny-1b"]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def test_the_nine_give_a_complete_table_with_gpu_rows_labelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *SMALL, "--output-dir", "out"]) == 0
    text = capsys.readouterr().out
    for name in default_names():
        assert len(re.findall(rf"^{name} ", text, re.MULTILINE)) == 2
    assert "GPU budget 16 GiB, MODELLED" in text
    assert "SIMULATED" in text
    assert "WHAT THIS MEANS FOR THE MODELLED DEVICES" in text
    rows = manifest(tmp_path / "out")["rows"]
    for row in rows:
        assert row["status"] in ("done", "not available")
        assert (tmp_path / "out" / row["file"]).exists() == (row["status"] == "done")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["name"] for row in summary["rows"]] == list(default_names())
    assert summary["advice"]


def test_the_list_of_workloads_chooses_the_rows(tmp_path: Path) -> None:
    assert main(["suite", *SMALL, "-w", "production,storage", "--output-dir", "out"]) == 0
    assert [row["scenario"]["name"] for row in manifest(tmp_path / "out")["rows"]] == [
        "production",
        "storage-only",
    ]


def test_a_file_of_ones_own_runs_and_its_mistakes_stop_it_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", "--show", "storage-only"]) == 0
    mine = capsys.readouterr().out.replace("name: storage-only", "name: mine")
    (tmp_path / "mine.yaml").write_text(mine)
    assert main(["suite", "mine.yaml", *SMALL, "--output-dir", "out"]) == 0
    assert manifest(tmp_path / "out")["rows"][0]["scenario"]["name"] == "mine"
    (tmp_path / "bad.yaml").write_text(mine.replace("${users}", "many"))
    assert main(["suite", "bad.yaml", *SMALL, "--output-dir", "bad"]) == 2
    assert "mine: num_users many" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


def test_a_resumed_suite_runs_only_what_is_missing(tmp_path: Path) -> None:
    assert main(["suite", *SMALL, "cpu-only", "storage-only", "production", "--output-dir", "out"]) == 0
    folder = tmp_path / "out"
    kept = (folder / "01-cpu-only.json").stat()
    before = json.loads((folder / "02-storage-only.json").read_text())
    (folder / "02-storage-only.json").unlink()
    assert main(["suite", "--resume", "out"]) == 0
    assert (folder / "01-cpu-only.json").stat().st_mtime_ns == kept.st_mtime_ns
    again = json.loads((folder / "02-storage-only.json").read_text())
    assert again["summary"] == before["summary"]
    assert all(row["status"] == "done" for row in manifest(folder)["rows"])


def test_compare_names_the_rows_of_a_suite_that_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *SMALL, "cpu-only", "storage-only", "--output-dir", "out"]) == 0
    folder = tmp_path / "out"
    state = manifest(folder)
    state["rows"][0] |= {"status": "failed", "reason": "Out of memory."}
    (folder / "manifest.json").write_text(json.dumps(state))
    capsys.readouterr()
    assert main(["compare", "out"]) == 0
    said = capsys.readouterr()
    assert said.err == "out: cpu-only is left out: failed. Out of memory.\n"
    assert "cpu-only" not in said.out
    (folder / "02-storage-only.json").unlink()
    (folder / "03-extra.json").write_bytes((folder / "01-cpu-only.json").read_bytes())
    state["rows"].append({**state["rows"][1], "file": "03-extra.json"})
    (folder / "manifest.json").write_text(json.dumps(state))
    assert main(["compare", "out"]) == 2
    assert (
        "out/02-storage-only.json: lost or damaged, but its row is marked as finished"
        in capsys.readouterr().err
    )


def test_a_result_written_just_before_the_kill_is_not_run_again(tmp_path: Path) -> None:
    assert main(["suite", *SMALL, "cpu-only", "--output-dir", "out"]) == 0
    path = tmp_path / "out" / "manifest.json"
    state = manifest(tmp_path / "out")
    state["rows"][0]["status"] = "pending"
    path.write_text(json.dumps(state))
    written = (tmp_path / "out" / "01-cpu-only.json").stat().st_mtime_ns
    assert main(["suite", "--resume"]) == 2
    assert main(["suite", "--resume", "out"]) == 0
    assert (tmp_path / "out" / "01-cpu-only.json").stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--tier-seconds", "5"], "leave --tier-seconds out"),
        (["--model", "mistral-7b"], "leave --model out"),
        (["--set", "num_users=3"], "leave --set out"),
        (["--output-dir", "other"], "--resume writes to out; leave it out"),
    ],
)
def test_a_resumed_suite_ignores_no_flag(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *SMALL, "cpu-only", "--output-dir", "out"]) == 0
    assert main(["suite", "--resume", "out", *flags]) == 2
    assert says in capsys.readouterr().err


def test_a_dry_run_of_a_resume_names_what_is_missing_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *SMALL, "cpu-only", "storage-only", "--output-dir", "out"]) == 0
    (tmp_path / "out" / "02-storage-only.json").unlink()
    capsys.readouterr()
    assert main(["suite", "--resume", "out", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("out: 1 of 2 scenarios done, left to run:\nstorage-only ")
    assert "cpu-only" not in out
    assert not (tmp_path / "out" / "02-storage-only.json").exists()


def test_a_file_that_names_its_model_has_it_in_heading_and_derivation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", "--show", "production"]) == 0
    mine = capsys.readouterr().out.replace("${model}", "mistral-7b")
    (tmp_path / "mine.yaml").write_text(mine)
    assert main(["suite", "mine.yaml", "--simulate", "--quick", "--users", "2", "--output-dir", "out"]) == 0
    text = capsys.readouterr().out
    assert "KV CACHE SUITE: mistral-7b, 1 scenario - SIMULATED" in text
    assert "a request of mistral-7b moves" in text
    assert main(["suite", "mine.yaml", "--simulate", "--model", "tiny-1b", "--dry-run"]) == 0
    assert "--model tiny-1b has no effect on production: their file fixes another" in capsys.readouterr().err


def test_a_flag_that_no_row_asks_for_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "storage-only", *SMALL, "--cpu-mem-gb", "0.25", "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "--cpu-mem-gb 0.25 has no effect" in said
    assert "--users" not in said


def test_resume_without_a_name_takes_the_latest(tmp_path: Path) -> None:
    assert main(["suite", *SMALL, "cpu-only"]) == 0
    assert main(["suite", "--resume"]) == 0
    assert len(list((tmp_path / "kvspill-results").iterdir())) == 1


def test_a_new_suite_never_overwrites_an_old_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", *SMALL, "cpu-only", "--output-dir", "out"]) == 0
    assert main(["suite", *SMALL, "cpu-only", "--output-dir", "out"]) == 2
    assert "add --resume out" in capsys.readouterr().err


def test_a_broken_manifest_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text('{"schema_version": 1, "rows"')
    assert main(["suite", "--resume", "out"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_row_that_cannot_run_is_skipped_with_the_reason_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = "{name: fine, config: {cpu_mem_gb: 1, duration: 5, num_users: 2}}"
    (tmp_path / "a.yaml").write_text(
        f"scenarios: [{fine}, {fine.replace('fine', 'not').replace('5', '5, device_profile: nope')}]"
    )
    assert main(["suite", "gpu-only", "a.yaml", *SMALL, "--output-dir", "o"]) == 0
    rows = manifest(tmp_path / "o")["rows"]
    assert [row["status"] for row in rows] == ["done", "done", "skipped"]
    assert "device-profile nope" in rows[2]["reason"]
    assert "Not run:" in capsys.readouterr().out


def test_dry_run_says_what_would_run_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *SMALL, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^storage-only +tiny-1b, 3 users, 75 s, storage 6 GiB$", text, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_the_time_of_the_load_is_said_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--cache-dir", str(tmp_path), "--cache-dir", str(tmp_path), "--dry-run"]
    assert main(["suite", "smoke", *place]) == 0
    assert "Time: 46 min of load in 8 scenarios;" in capsys.readouterr().out
    assert main(["suite", "smoke", "--quick", *place]) == 0
    assert "Time: 9 min of load in 8 scenarios;" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["suite", "--help"])
    assert "46 min of load, 9 min with --quick" in capsys.readouterr().out


def test_one_scenario_is_not_counted_in_the_plural(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", *SMALL, "cpu-only", "--output-dir", "out"]) == 0
    assert "tiny-1b, 1 scenario - SIMULATED" in capsys.readouterr().out


def test_a_scenario_without_a_name_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("scenarios: [{config: {num_users: 2}}]")
    assert main(["suite", "a.yaml", *SMALL]) == 2
    error = capsys.readouterr().err
    assert "scenario 1: has no name; give it one" in error
    assert "None" not in error


def test_list_names_every_built_in_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "--list"]) == 0
    text = capsys.readouterr().out
    for name in builtins():
        assert f"\n{name} " in "\n" + text


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["producton"], "did you mean production"),
        (["--users", "0"], "not a whole number from 1 to 1,000,000"),
        (["--tier-seconds", "-3"], "not a number above 0"),
        (["--tier-seconds", "9" * 26], "is not a number above 0 and below 1,000,000,000"),
        (["--seed", "9" * 26, "--dry-run"], "is not a whole number from -9,223,372,036,854,775,808 to"),
        (["--trials", "5000", "--dry-run"], "is not a whole number from 1 to 1,000;"),
        (["--model", "nope"], "unknown model"),
        (["--set", "nope=1"], "is not NAME=VALUE"),
        (["--seed", "3", "--set", "seed=4"], "--set seed=4: contradicts --seed 3; leave one of them out"),
        (["--trials", "2", "--set", "trials=3"], "--set trials=3: contradicts --trials 2"),
        (
            ["mlperf", "--option", "1", "--simulate", "--duration", "5", "--set", "duration=9"],
            "--set duration=9: contradicts --duration 5.0; leave one of them out",
        ),
        (
            ["mlperf", "--option", "1", "--simulate", "--set", "trials=9"],
            "--set trials=9: contradicts --trials 3",
        ),
        (["--show", "nope"], "no built-in scenario"),
        (["mlperf"], "--option: missing"),
        (["mlperf", "--option", "9"], "invalid choice"),
        (["mlperf", "--option", "1", "--allocs", "16"], "belongs to option 2"),
        (["--resume", "nowhere"], "leave --simulate out"),
    ],
)
def test_mistakes_are_one_line_with_exit_2(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *argv, *([] if "mlperf" in argv else ["--simulate"])]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_submission_writes_its_summary_and_names_why_it_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["suite", "mlperf", "--option", "2", "--simulate", "--duration", "10", "--trials", "3"]
    assert main([*argv, "--output-dir", "out"]) == 0
    text = capsys.readouterr().out
    assert "Division: OPEN" in text
    assert "deviation: --duration 10: option 2 fixes 300" in text
    assert "simulated, no byte moved" in text
    summary = json.loads((tmp_path / "out" / "submission.json").read_text())
    assert summary["trials"] == {"run": 3, "complete": 3, "ranks": 1}
    assert summary["same_work"] is True
    assert summary["compare_by"]["primary"] == ["storage_throughput_tokens_per_sec"]
    assert len(summary["files"]) == 3


def suite_process(
    folder: Path, stdout: int = subprocess.DEVNULL, stderr: int = subprocess.DEVNULL
) -> "subprocess.Popen[bytes]":
    flags = ["--cpu-mem-gb", "0.5", "--storage-capacity-gb", "1", "--tier-seconds", "0.8", "--users", "2"]
    rows = ["cpu-only", "storage-only", "cpu-storage"]
    command = [sys.executable, "-m", "kvspill.cli.main", "suite", *rows, *flags, "--model", "tiny-1b"]
    return subprocess.Popen(
        [*command, "--cache-dir", str(folder.parent), "--output-dir", str(folder)],
        stdout=stdout,
        stderr=stderr,
    )


def wait_for_the_second_row(folder: Path) -> None:
    """Until the first scenario's result is there and the second one has stored an entry."""
    wait_until((folder / "01-cpu-only.json").exists)
    wait_until(lambda: list(folder.parent.glob("kvspill-*/*/*")))


@pytest.mark.real
@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT])
def test_a_suite_whose_reader_dies_at_the_same_ctrl_c_exits_130_with_its_summary(
    tmp_path: Path, stderr: int
) -> None:
    folder = tmp_path / "out"
    process = suite_process(folder, subprocess.PIPE, stderr)
    assert process.stdout is not None
    wait_for_the_second_row(folder)
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    if process.stderr is not None:
        assert f"kvspill suite --resume {folder}" in process.stderr.read().decode()
        process.stderr.close()
    assert process.wait(timeout=20) == 130
    assert json.loads((folder / "summary.json").read_text())["rows"][0]["status"] == "done"
    assert (folder / "summary.txt").exists()


@pytest.mark.real
# The end by a signal that can be heeded is shown above, too.
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_suite_killed_in_the_middle_and_resumed_has_a_complete_table(
    tmp_path: Path, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    process = suite_process(folder)
    wait_for_the_second_row(folder)
    process.send_signal(number)
    process.wait(timeout=20)
    states = [row["status"] for row in manifest(folder)["rows"]]
    assert "done" in states
    assert states != ["done"] * 3
    assert main(["suite", "--resume", str(folder)]) == 0
    text = capfd.readouterr().out
    assert [row["status"] for row in manifest(folder)["rows"]] == ["done"] * 3
    for name in ("cpu-only", "storage-only", "cpu-storage"):
        assert len(re.findall(rf"^{name} ", text, re.MULTILINE)) == 2
    # The killed row's files are gone, and nothing of the suite is left in the cache directory.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.real
def test_a_real_row_measures_and_labels_the_gpu_as_modelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["gpu-cpu-storage", "--model", "tiny-1b", "--users", "2", "--tier-seconds", "2", "--quick"]
    argv += ["--cpu-mem-gb", "0.5", "--cache-dir", str(tmp_path), "--output-dir", str(tmp_path / "out")]
    assert main(["suite", *argv]) == 0
    text = capsys.readouterr().out
    if not os.path.exists("/dev/nvidia0"):
        assert "gpu-cpu-storage (GPU modelled)" in text
        assert "modelled: times come from a device model" in text


@pytest.mark.parametrize("quick", [[], ["--quick"]])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (".inf", "duration inf: not a finite number"),
        ("1e400", "duration 1e400: not a finite number"),
        ("9" * 20, "out of range; give more than 0, at most 604,800 seconds"),
        ("2024-01-01", "duration 2024-01-01: not a number"),
    ],
)
def test_a_duration_that_no_run_takes_is_refused_with_quick_too(
    tmp_path: Path, given: str, says: str, quick: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """--quick made 75 s of it."""
    rows = tmp_path / "mine.yaml"
    rows.write_text(f"scenarios:\n  - name: a\n    config: {{model: tiny-1b, duration: {given}}}\n")
    assert main(["suite", str(rows), "--simulate", "--dry-run", *quick]) == 2
    assert says in capsys.readouterr().err
