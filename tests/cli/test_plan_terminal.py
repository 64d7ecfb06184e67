"""`kvspill plan` on a terminal: its answer begins on a line of its own."""

import io
import sys
from pathlib import Path

import pytest

from kvspill.cli.main import main

LOAD = "--model tiny-1b --slo-target-ms 200 --generation-mode fast --duration 8 --quick --option nvme-gen4"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_answer_does_not_stand_behind_the_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step's block stayed, and the answer was printed at its end."""
    monkeypatch.setattr("kvspill.plan.simulations._TICK_SECONDS", 0.001)
    both = Terminal()
    monkeypatch.setattr(sys, "stderr", both)
    monkeypatch.setattr(sys, "stdout", both)
    asked = ["--users", "4", "--output", str(tmp_path / "plan.json")]
    assert main(["plan", *LOAD.split(), *asked]) == 0
    text = both.getvalue()
    shown, answer = text.rindex(" 1 done"), text.index("YES (predicted)")
    assert "\x1b[2K" in text[shown:answer], text[shown : answer + 20]
    assert "\x1b" not in text[answer:]
