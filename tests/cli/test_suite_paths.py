"""What a suite's files say decides no place to write to: only the command line does."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main

SIMULATED = ["suite", "mine.yaml", "--simulate", "--quiet", "--output-dir", "out"]
ROWS = """\
scenarios:
  - name: one
    config: {model: tiny-1b, num_users: 1, max_requests: 3, request_rate: 50, generation_mode: none,
      cpu_mem_gb: 0, storage_capacity_gb: 1}
"""
KINDS: list[dict[str, Any]] = [
    {"kind": []},
    {"kind": {}},
    {"kind": 1},
    {"kind": "other"},
    {"kind": "submission"},
    {"kind": "submission", "option": "9"},
    {"kind": "submission", "option": []},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite whose only row is still to be run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(ROWS)
    assert main(SIMULATED) == 0
    (tmp_path / "out" / "01-one.json").unlink()
    return tmp_path / "out"


def change(folder: Path, **changes: Any) -> None:
    data = json.loads((folder / "manifest.json").read_text())
    row = data["rows"][0]
    row["file"] = changes.pop("file", row["file"])
    data["simulated"] = changes.pop("simulated", True)
    row["scenario"]["name"] = changes.pop("name", row["scenario"]["name"])
    row["scenario"]["settings"] |= changes
    (folder / "manifest.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    "file", ["../x.json", "manifest.json", ".lock", "/tmp/x.json", "summary.txt", "", "01-.."]
)
def test_a_manifest_names_no_file_but_those_of_its_rows(folder: Path, file: str) -> None:
    change(folder, file=file)
    before = sorted(folder.parent.rglob("*"))
    assert main(["suite", "--resume", "out"]) == 2
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize("setting", ["output", "log_ops", "xlsx_output", "io_trace_log"])
def test_a_manifest_sets_no_output(folder: Path, setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    outside = folder.parent / "outside.parquet"
    change(folder, **{setting: str(outside)})
    assert main(["suite", "--resume", "out"]) == 2
    assert f"row 1 has the setting {setting}" in capsys.readouterr().err
    assert not outside.exists()


@pytest.mark.parametrize(
    "facts",
    [*KINDS, "no rows"],
    ids=str,
)
def test_a_manifest_of_no_kind_of_suite_is_one_line(
    folder: Path, facts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was an internal error after the rows had run."""
    state = json.loads((folder / "manifest.json").read_text())
    state |= {"rows": []} if facts == "no rows" else {"facts": facts}
    (folder / "manifest.json").write_text(json.dumps(state))
    for command in (["suite", "--resume", "out"], ["report", "out"], ["compare", "out"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "manifest.json " in said
        assert "start a new suite" in said


@pytest.mark.parametrize("name", ["01-one.json", "manifest.json", "summary.json", "summary.txt"])
def test_a_link_in_the_directory_is_replaced_and_not_followed(folder: Path, name: str) -> None:
    precious = folder.parent / "precious"
    content = (folder / "manifest.json").read_text() if name == "manifest.json" else "mine"
    precious.write_text(content)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(precious)
    assert main(["suite", "--resume", "out", "--quiet"]) == 0
    assert precious.read_text() == content
    assert not (folder / name).is_symlink()


def test_a_pipe_in_the_directory_holds_nothing_up(folder: Path) -> None:
    (folder / "summary.txt").unlink()
    os.mkfifo(folder / "summary.txt")
    assert main(["suite", "--resume", "out", "--quiet"]) == 0
    assert "one" in (folder / "summary.txt").read_text()


def test_entries_are_stored_where_the_command_line_says(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    change(folder, simulated=False, cache_dir=[str(elsewhere)])
    resume = ["suite", "--resume", "out", "--quiet"]
    assert main(resume) == 2
    assert f"which this command does not name; add --cache-dir {elsewhere}" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []
    assert main([*resume, "--dry-run"]) == 0, "a dry run stores nothing"
    assert "left to run" in capsys.readouterr().out
    assert main([*resume, "--cache-dir", str(elsewhere), "--cache-dir", "."]) == 2
    assert main([*resume, "--cache-dir", str(elsewhere)]) == 0
    assert (folder / "01-one.json").exists()


@pytest.mark.parametrize("setting", ["log_ops", "io_trace_log"])
def test_no_output_can_be_set_for_every_row(
    folder: Path, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIMULATED[:-1], "other", "--set", f"{setting}=x.parquet"]) == 2
    assert f"{setting} belongs to the whole suite" in capsys.readouterr().err
    assert not (folder.parent / "other").exists()


@pytest.mark.parametrize("name", ["../one", "a/b", "..", "x" * 70])
def test_a_scenarios_name_decides_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(ROWS.replace("name: one", f"name: {name}"))
    assert main(SIMULATED) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


UNKNOWN_DEVICE = """\
scenarios:
  - name: one
    config: {model: tiny-1b, num_users: 1, max_requests: 3, device_profile: gone.yaml}
"""


def test_a_suite_of_which_nothing_could_be_measured_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row was skipped, here and after --resume, and the exit status was 0."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(UNKNOWN_DEVICE)
    for command in (SIMULATED, ["suite", "--resume", "out", "--quiet"]):
        assert main(command) == 1
        assert "No scenario was measured" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["rows"][0]["status"] == "skipped"
    (tmp_path / "mine.yaml").write_text(
        UNKNOWN_DEVICE + ROWS.removeprefix("scenarios:\n").replace("name: one", "name: two")
    )
    assert main([*SIMULATED[:-1], "some"]) == 0
