"""`kvspill suite backends`: its page is drawn whenever its comparison is kept, and it can be continued."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.errors import UsageError
from kvspill.run.runner import make_plan
from kvspill.run.signals import Interrupts
from kvspill.suite import campaign, provenance

PAGE = Path("out/report.html")
OUT = ("--output-dir", "out", "--quiet")
HEADING = "Storage targets under one load"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A suite of two directories. What is tested begins where their runs are over: these are simulated."""

    def simulated(config: Any, _simulated: bool, company: Any) -> Any:
        return make_plan(config, True, company)

    monkeypatch.setattr(campaign, "make_plan", simulated)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
    return ["suite", "backends", "--quick", "--target", "a", "--target", "b", *OUT]


def test_a_resumed_suite_has_a_page_of_all_targets(two: list[str]) -> None:
    """It had that of the targets which were finished when it was interrupted, or none."""
    assert main(two) == 0
    state = json.loads(Path("out/manifest.json").read_text())
    state["rows"][1]["status"] = "interrupted"
    Path("out/manifest.json").write_text(json.dumps(state))
    Path("out/02-2-b.json").unlink()
    PAGE.unlink()
    assert main(["suite", "--resume", "out", "--cache-dir", "a", "--cache-dir", "b", "--quiet"]) == 0
    assert HEADING in PAGE.read_text()


def test_a_comparison_without_a_reader_has_its_page(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        # No signal ended a command of an earlier test.
        monkeypatch.setattr(Interrupts, "came", False)
        assert main(two) == 1
    assert HEADING in PAGE.read_text()


def test_a_comparison_without_room_to_draw_has_no_page(
    two: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended as a usage error after all targets had been measured."""

    def refused() -> None:
        raise UsageError("ulimit -v: too little")

    monkeypatch.setattr("kvspill.report.html.page.check_drawing_limits", refused)
    assert main(two) == 0
    assert "No page: ulimit -v: too little; then `kvspill report` the results" in capsys.readouterr().out
    assert not PAGE.exists()


def test_what_continued_a_suite_may_come_again_when_nothing_is_left_to_run(
    two: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a kill before the comparison the same command was refused: the directory was not the suite's."""
    monkeypatch.setattr(provenance, "without_foreign", lambda _folder, manifest: (manifest, []))
    assert main(two) == 0
    Path("out/summary.json").unlink()
    assert main(["suite", "--resume", "out", "--cache-dir", "a", "--cache-dir", "b", "--quiet"]) == 0
    assert Path("out/summary.json").exists()
    assert main(["suite", "--resume", "out", "--cache-dir", ".", "--quiet"]) == 2
    assert "leave --cache-dir . out" in capsys.readouterr().err
