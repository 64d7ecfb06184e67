"""Names that would turn the writing round, drive the terminal or be a formula are shown, not obeyed."""

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.doctor import print_checks
from kvspill.cli.main import main
from kvspill.doctor.doctor import Check, Status
from kvspill.report.console import print_summary
from kvspill.result.reading import load_result
from unit.result import sample
from unit.test_texts import obeyed

HOSTILE = "\n=1\u202eevil\x1b[2J\x9b31m\u2066\x07"
NAME = "r\u202e\x1b[31m"


def hostile_result() -> dict[str, Any]:
    whole = sample.result()
    whole["config"] |= {"model": HOSTILE, "cache_dir": [f"/x{HOSTILE}"], "trace": f"mooncake:{HOSTILE}"}
    whole["environment"] = {"hostname": HOSTILE, "kernel": HOSTILE, "cpu": {"model": HOSTILE}}
    whole["warnings"] = [{"code": f"c{HOSTILE}", "message": HOSTILE, "remedy": HOSTILE}]
    for tier in whole["tiers"]:
        tier["description"] = HOSTILE
        tier["backend"] = HOSTILE
    whole["kvspill_version"] = HOSTILE
    whole["command"] = HOSTILE
    whole["digest"] = HOSTILE
    return whole


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        whole = {**hostile_result(), "seed": ord(name)}
        (tmp_path / f"{NAME}{name}.json").write_text(json.dumps(whole))
    row = {"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
    (tmp_path / f"{NAME}.jsonl").write_text(f"{json.dumps(row)}\n" * 3)
    return tmp_path


COMMANDS = (
    f"compare|{NAME}a.json",
    f"compare|{NAME}a.json|--|{NAME}b.json",
    f"compare|{NAME}a.json|--|{NAME}b.json|--fail-if-slower|5%",
    f"compare|{NAME}a.json|--format|json",
    f"report|{NAME}a.json|-o|{NAME}.html",
    f"report|{NAME}missing.json|-o|x.html",
    f"compare|{NAME}missing.json",
    f"suite|{NAME}.yaml",
    f"simulate|--model|{NAME}",
    f"simulate|--config|{NAME}.yaml",
    f"simulate|--trace|mooncake:{NAME}",
    f"simulate|--device-profile|{NAME}",
    f"simulate|--trace|{NAME}:x",
    f"curve|--trace|mooncake:{NAME}.jsonl|--model|tiny-1b",
    f"clean|{NAME}",
    f"{NAME}",
    f"run|--{NAME}",
)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_drives_the_terminal(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(words.split("|"))
    printed = capsys.readouterr()
    assert printed.out + printed.err
    assert obeyed(printed.out) <= {"\n"}
    assert obeyed(printed.err) <= {"\n"}


def test_the_console_of_a_run_drives_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate --model tiny-1b --num-users 1 --max-requests 2 --output"
    assert main([*words.split(), f"{NAME}out\n.json"]) == 0
    printed = capsys.readouterr()
    assert f"{NAME}out\n.json" in os.listdir(place)
    assert obeyed(printed.out) <= {"\n"}
    assert obeyed(printed.err) <= {"\n"}


def test_a_suite_of_hostile_titles_drives_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"scenarios: [{{name: a, title: {json.dumps(HOSTILE)}, purpose: {json.dumps(HOSTILE)}, "
    text += "config: {model: tiny-1b, num_users: 1, max_requests: 2}}]\n"
    (place / "own.yaml").write_text(text)
    assert main(["suite", "own.yaml", "--simulate", "--output-dir", f"{NAME}suite"]) == 0
    printed = capsys.readouterr()
    assert obeyed(printed.out) <= {"\n"}
    assert obeyed(printed.err) <= {"\n"}
    assert obeyed((place / f"{NAME}suite" / "summary.txt").read_text()) <= {"\n"}


def test_a_page_holds_nothing_that_turns_the_writing_round(place: Path) -> None:
    assert main(["report", f"{NAME}a.json", f"{NAME}b.json", "-o", "page.html"]) == 0
    page = (place / "page.html").read_text()
    assert "evil" in page
    ours = {"\n", "\t"}
    head, _, rest = page.partition("<script")
    assert obeyed(head) <= ours
    assert obeyed(rest.rpartition("</script>")[2]) <= ours
    assert "\\u202e" not in page
    assert "\\u001b" not in page


@pytest.mark.parametrize("name", ["t.csv", "t.xlsx"])
def test_a_table_holds_no_formula_and_no_control_character(name: str, place: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    flag = "--csv" if name.endswith("csv") else "--xlsx"
    assert main(["report", f"{NAME}a.json", flag, name]) == 0
    if name.endswith("csv"):
        rows = [list(row) for row in csv.reader(io.StringIO((place / name).read_text()))]
    else:
        rows = [list(row) for row in openpyxl.load_workbook(place / name).active.iter_rows(values_only=True)]
    texts = [value for row in rows for value in row if isinstance(value, str)]
    assert any("evil" in text for text in texts)
    for text in texts:
        assert obeyed(text) <= {"\n", "\t"}
        assert not text.strip().startswith(("=", "+", "-", "@"))


def test_the_doctor_drives_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    print_checks([Check(HOSTILE, HOSTILE, Status.WARNING, HOSTILE, HOSTILE)], stream)
    assert "evil" in stream.getvalue()
    assert obeyed(stream.getvalue()) <= {"\n"}
    assert capsys.readouterr().out == ""


def test_a_name_that_is_no_utf_8_leaves_a_result_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = os.fsdecode(b"caf\xe9.json")
    words = "simulate --model tiny-1b --num-users 1 --max-requests 2 --output"
    assert main([*words.split(), path]) == 0
    assert json.loads(Path(path).read_text())["config"]["output"] == r"caf\xe9.json"
    assert main(["compare", path, "--", path]) == 0, capsys.readouterr().err
    assert main(["report", path, "-o", "page.html"]) == 0, capsys.readouterr().err


def test_a_directory_whose_name_breaks_lines_forges_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("a\nkvspill: error: forged line")
    folder.mkdir()
    words = "--model tiny-1b --num-users 2 --max-requests 3 --request-rate 100 --generation-mode none"
    room = ["--cpu-mem-gb", "0", "--storage-capacity-gb", "0.3", "--cache-dir", str(folder)]
    run = ["run", *words.split(), *room]
    assert main([*run, "--log-ops", str(folder / "o.parquet"), "--output", str(folder / "r.json")]) == 0
    assert main(["export", "trace", str(folder / "o.parquet"), "-o", str(folder / "t.jsonl")]) == 0
    for verbose in (False, True):
        print_summary(load_result(folder / "r.json"), [], file=sys.stdout, verbose=verbose)
    printed = capsys.readouterr()
    assert "forged" in printed.err
    assert "forged" in printed.out
    lines = (printed.out + printed.err).splitlines()
    assert not [line for line in lines if line.startswith("kvspill: error")]
