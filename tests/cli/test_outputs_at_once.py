"""Two commands with one --output at once: neither replaces what the other wrote meanwhile."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.plan import planning

PLAN = [
    *("plan", "--users", "3", "--model", "tiny-1b", "--duration", "8", "--generation-mode", "fast"),
    *("--option", "nvme-gen4", "--quick"),
]
OTHERS = "of another command\n"


@pytest.fixture(params=[None, "of last week\n"], ids=["new", "replaced"])
def output(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "out.json"
    if request.param is not None:
        path.write_text(request.param)
    return path


def overtaken(output: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command wrote that found its place taken."""
    err = capsys.readouterr().err
    own = output.with_name("out-2.json")
    assert "out.json: another program has written it since this run began" in err
    assert f"is in {own}" in err
    assert output.read_text() == OTHERS
    return own.read_text()


def test_a_calibration_replaces_no_profile_that_another_wrote(
    output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def calibrate(*_given: Any) -> Any:
        output.write_text(OTHERS)
        return SimpleNamespace(left=[])

    # A real one takes 20 s and writes gigabytes.
    monkeypatch.setattr("kvspill.plan.calibrate.calibrate", calibrate)
    monkeypatch.setattr("kvspill.plan.calibrate.check_device", lambda _paths: "a drive")
    monkeypatch.setattr("kvspill.plan.calibrate.document", lambda _found: {"storage": 1})
    assert main(["calibrate", "--quick", "--quiet", "--cache-dir", ".", "--output", str(output)]) == 1
    assert overtaken(output, capsys) == "storage: 1\n"


def test_a_plan_replaces_no_plan_that_another_wrote(
    output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = planning.plan

    def plan(*given: Any) -> Any:
        output.write_text(OTHERS)
        return real(*given)

    monkeypatch.setattr(planning, "plan", plan)
    assert main([*PLAN, "--workers", "1", "--quiet", "--output", str(output)]) == 1
    assert json.loads(overtaken(output, capsys))["text"]


def test_the_same_question_again_replaces_its_answer(output: Path) -> None:
    for _ in range(2):
        main([*PLAN, "--workers", "1", "--quiet", "--output", str(output)])
        assert json.loads(output.read_text())["asked"] == 3
    assert [path.name for path in output.parent.iterdir()] == ["out.json"]
