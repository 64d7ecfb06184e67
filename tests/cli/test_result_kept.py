"""A result that was measured is not lost: not to a full disk, a missing right or a run of the same second."""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli import measuring
from kvspill.cli.main import main
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
