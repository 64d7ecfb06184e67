"""`kvspill doctor` from the command line: text, JSON and exit codes."""

import json
from pathlib import Path

import pytest

from kvspill.cli.main import main


def test_json_has_a_verdict_and_a_remedy_for_every_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", "--json", "--cache-dir", str(tmp_path)])
    answer = json.loads(capsys.readouterr().out)
    assert code == (1 if answer["verdict"] == "problem" else 0)
    names = {check["name"] for check in answer["checks"]}
    assert {"kernel", "O_DIRECT", "memory", "swap", "io_uring", "GPU", "CPU cores", "free space"} <= names
    assert all(bool(check["remedy"]) == (check["status"] != "ok") for check in answer["checks"])


def test_a_missing_directory_is_a_problem_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--cache-dir", str(tmp_path / "nope")]) == 1
    text = capsys.readouterr().out
    assert "problem  directory: does not exist" in text
    assert f"-> make it with: mkdir -p {tmp_path / 'nope'}" in text


def test_text_counts_what_it_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--cache-dir", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    warnings = sum(line.startswith("  warning ") for line in lines)
    assert f"{warnings} warnings" in lines[-1]


def test_an_unknown_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--nope"]) == 2
    assert "kvspill doctor --help" in capsys.readouterr().err
