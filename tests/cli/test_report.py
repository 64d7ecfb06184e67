"""`kvspill report` from the command line: a page, tables, and one line for every mistake."""

import csv
import json
from pathlib import Path

import pytest

from kvspill.cli.main import main
from unit.report.compare.made import legacy, write
from unit.result import sample

pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return write(tmp_path / "one.json", sample.result())


def test_a_page_is_written_where_asked_and_named(result: Path, tmp_path: Path, capsys: Printed) -> None:
    target = tmp_path / "new" / "page.html"
    assert main(["report", str(result), "-o", str(target), "--title", "Drive X"]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    text = target.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "<title>Drive X</title>" in text
    assert list(target.parent.iterdir()) == [target]


def test_without_a_name_the_page_is_report_html(
    result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(result)]) == 0
    assert (tmp_path / "report.html").is_file()


def test_tables_alone_make_no_page(
    result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(result), str(result), "--csv", "t.csv", "--xlsx-output", "t.xlsx"]) == 0
    assert capsys.readouterr().out == "t.csv\nt.xlsx\n"
    assert not (tmp_path / "report.html").exists()
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["Filename"] for row in rows] == ["one", "one"]


def test_a_page_that_cannot_be_written_leaves_nothing_behind(
    result: Path, tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / "dir").mkdir()
    assert main(["report", str(result), "-o", str(tmp_path / "dir")]) == 1
    assert "cannot write the page to" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"one.json", "dir"}


def test_a_page_replaces_only_a_page(result: Path, tmp_path: Path, capsys: Printed) -> None:
    other = write(tmp_path / "other.json", sample.result())
    before = other.read_bytes()
    assert main(["report", str(result), "-o", str(other)]) == 2
    assert "is no HTML page" in capsys.readouterr().err
    for flag in ("-o", "--csv", "--xlsx"):
        assert main(["report", str(result), str(other), flag, str(other)]) == 2
    assert other.read_bytes() == before
    page = tmp_path / "p.html"
    assert main(["report", str(result), "-o", str(page)]) == 0
    assert main(["report", str(result), "-o", str(page)]) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(sample.result())[:5000], "cut short"),
        (json.dumps({**sample.result(), "schema_version": 3}), "newer kvspill"),
        (json.dumps(legacy()), "not a kvspill result"),
        ("{}", "not a kvspill result"),
    ],
)
def test_a_result_that_is_not_ours_or_not_whole_is_one_line_and_exit_2(
    tmp_path: Path, content: str, said: str, capsys: Printed
) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    assert main(["report", str(path), "-o", str(tmp_path / "p.html")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no results given"),
        (["none.json"], "none.json: cannot be read"),
        (["a.json", "--frobnicate"], "--frobnicate"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(argv: list[str], said: str, capsys: Printed) -> None:
    assert main(["report", *argv]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_run_writes_its_row_beside_its_result(tmp_path: Path, capsys: Printed) -> None:
    row, document = tmp_path / "row.csv", tmp_path / "r.json"
    flags = ["--num-users", "2", "--duration", "20", "--model", "tiny-1b", "--seed", "9"]
    assert main(["simulate", *flags, "--output", str(document), "--xlsx-output", str(row)]) == 0
    printed = capsys.readouterr().out
    assert str(row) in printed
    (cells,) = csv.DictReader(row.open())
    assert (cells["Filename"], cells["Users"], cells["Model"], cells["Seed"]) == (
        "r.json",
        "2",
        "tiny-1b",
        "9",
    )
    summary = json.loads(document.read_text())["summary"]
    assert float(cells["Decode Bytes Read (GB)"]) == summary["cache_stats"]["decode_bytes_read_gb"]


def test_a_table_of_an_unknown_kind_is_refused_before_the_run(tmp_path: Path, capsys: Printed) -> None:
    flags = [
        "--duration",
        "20",
        "--output",
        str(tmp_path / "r.json"),
        "--xlsx-output",
        str(tmp_path / "t.ods"),
    ]
    assert main(["simulate", *flags]) == 2
    assert "neither .xlsx nor .csv" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
