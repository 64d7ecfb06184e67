"""A resumed suite shows only results that its rows would give."""

import json
from pathlib import Path

import pytest

from kvspill.cli import suites
from kvspill.cli.main import main

SMALL = ["--simulate", "--quick", "--users", "3", "--model", "tiny-1b", "--output-dir", "out"]


@pytest.mark.parametrize("foreign", ["copied", "swapped", "edited"])
def test_a_resumed_suite_takes_no_other_result_for_a_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], foreign: str
) -> None:
    """Any result that could be read was shown as the row's, and nothing was left to run."""
    monkeypatch.chdir(tmp_path)
    assert main(["suite", *SMALL, "cpu-only", "storage-only"]) == 0
    folder = tmp_path / "out"
    state = json.loads((folder / "manifest.json").read_text())
    first, second = (folder / row["file"] for row in state["rows"])
    before = [json.loads(path.read_text())["summary"] for path in (first, second)]
    names = ["cpu-only"]
    if foreign == "copied":
        assert main(["simulate", "--num-users", "3", "--duration", "5", "--output", "other.json"]) == 0
        first.write_text((tmp_path / "other.json").read_text())
    elif foreign == "swapped":
        one, other = state["rows"]
        one["file"], other["file"] = other["file"], one["file"]
        first, second, names = second, first, ["cpu-only", "storage-only"]
    else:
        state["rows"][0]["scenario"]["settings"]["num_users"] = 1
    (folder / "manifest.json").write_text(json.dumps(state))
    capsys.readouterr()
    assert main(["suite", "--resume", "out"]) == 0
    said = capsys.readouterr().err
    assert f"{2 - len(names)} of 2 scenarios done" in said
    lines = [line for line in said.splitlines() if "is no result of this row: " in line]
    assert [line.split(": ")[2] for line in lines] == names
    again = [json.loads(path.read_text()) for path in (first, second)]
    if foreign == "edited":
        assert again[0]["config"]["num_users"] == 1
    else:
        assert again[0]["summary"] == before[0]
    assert again[1]["summary"] == before[1]


def test_suites_of_the_same_second_each_get_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one was refused, as its directory was another's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suites, "now_name", lambda: "20261101-120000")
    for _ in range(3):
        assert main(["suite", *SMALL[:-2], "cpu-only"]) == 0
    found = sorted(path.parent.name for path in tmp_path.glob("kvspill-results/*/manifest.json"))
    assert found == [f"suite-20261101-120000{number}" for number in ("", "-2", "-3")]
