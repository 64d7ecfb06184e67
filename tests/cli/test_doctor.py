"""`kvspill doctor` from the command line: text, JSON and exit codes."""

import json
import sys
from pathlib import Path

import pytest

from kvspill.cli.doctor import print_checks
from kvspill.cli.main import main
from kvspill.doctor.doctor import Check, Status, verdict


def test_json_has_a_verdict_and_a_remedy_for_every_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", "--json", "--cache-dir", str(tmp_path)])
    answer = json.loads(capsys.readouterr().out)
    assert code == (1 if answer["verdict"] == "problem" else 0)
    names = {check["name"] for check in answer["checks"]}
    assert {"kernel", "O_DIRECT", "memory", "swap", "io_uring", "GPU", "CPU cores", "free space"} <= names
    assert all(bool(check["remedy"]) == (check["status"] != "ok") for check in answer["checks"])


def test_a_missing_directory_is_a_problem_and_exit_2_as_of_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--cache-dir", str(tmp_path / "nope")]) == 2
    text = capsys.readouterr().out
    assert "problem  directory: does not exist" in text
    assert f"-> mount the drive that belongs there, or make it with: mkdir -p {tmp_path / 'nope'}" in text


def test_a_file_in_place_of_a_directory_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["doctor", str(tmp_path), str(file), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["verdict"] == "problem"


def test_a_current_directory_that_cannot_be_used_is_no_mistake_in_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvspill.machine.hardware.USUAL_PLACES", ())
    monkeypatch.chdir("/proc")
    assert main(["doctor"]) == 1
    assert "problem  directory: lies on proc" in capsys.readouterr().out


def test_text_counts_what_it_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--cache-dir", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    warnings = sum(line.startswith("  warning ") for line in lines)
    assert f"{warnings} warning" in lines[-1]


def test_one_is_not_counted_in_the_plural(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [Check("g", "a", Status.PROBLEM, "x", "y"), Check("g", "b", Status.WARNING, "x", "y")]
    print_checks(checks, sys.stdout)
    assert capsys.readouterr().out.endswith("0 ok, 1 warning, 1 problem\n")
    print_checks(checks * 2, sys.stdout)
    assert capsys.readouterr().out.endswith("0 ok, 2 warnings, 2 problems\n")


def test_notes_are_shown_and_counted_and_spoil_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        Check("extras", "s3", Status.NOTE, "not installed", "install it"),
        Check("g", "a", Status.OK, "x"),
    ]
    print_checks(checks, sys.stdout)
    text = capsys.readouterr().out
    assert "  note     s3: not installed" in text
    assert text.endswith("1 ok, 1 note, 0 warnings, 0 problems\n")
    assert verdict(checks) is Status.OK


def test_an_unknown_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--nope"]) == 2
    assert "kvspill doctor --help" in capsys.readouterr().err
