"""`kvspill report` from the command line: a page, tables, and one line for every mistake."""

import csv
import gc
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli import given
from kvspill.cli.main import main
from kvspill.report import tables
from kvspill.result.schema import Result
from unit.report.compare.made import legacy, write
from unit.report.html.outline import Outline
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
    said = f"the directory {target.parent} does not exist and will be made\n"
    assert capsys.readouterr() == (f"{target}\n", said)
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


def test_a_table_holds_one_result_at_a_time(
    result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, two thousand took 1.7 GB of memory."""
    alive: list[int] = []
    before = sum(type(one) is Result for one in gc.get_objects())

    def counted(name: str, read: Result) -> tables.Row:
        gc.collect()
        alive.append(sum(type(one) is Result for one in gc.get_objects()))
        return row_of(name, read)

    row_of = tables.row_of
    monkeypatch.setattr(tables, "row_of", counted)
    assert main(["report", *[str(result)] * 6, "--csv", str(tmp_path / "t.csv")]) == 0
    assert len(alive) == 6
    assert max(alive) <= before + 2


def test_a_page_of_more_results_than_it_can_show_is_refused_before_any_is_read(
    tmp_path: Path, capsys: Printed
) -> None:
    words = [str(tmp_path / "nothing.json")] * 501
    assert main(["report", *words, "-o", str(tmp_path / "page.html")]) == 2
    said = "501 results are more than a page can show (500); name fewer, or give --csv or --xlsx without -o"
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_title_without_a_page_is_refused(result: Path, capsys: Printed) -> None:
    assert main(["report", str(result), "--csv", "t.csv", "--title", "Before"]) == 2
    assert "--title: heads the page, and tables have none" in capsys.readouterr().err
    assert not Path("t.csv").exists()


def test_a_page_that_cannot_be_written_leaves_nothing_behind(
    result: Path, tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / "dir").mkdir()
    assert main(["report", str(result), "-o", str(tmp_path / "dir")]) == 2
    assert "is a directory; name a file in it" in capsys.readouterr().err
    assert main(["report", str(result), "-o", "/proc/page.html"]) == 2
    assert "-o /proc/page.html: /proc takes no file" in capsys.readouterr().err
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
        ('{"kvspill_plan": 1}', "a plan and not a result; `kvspill plan` makes its page, with --page"),
        ("{}", "not a result; give JSON of kvspill, kv-cache.py, vLLM or LMCache"),
    ],
)
def test_what_is_no_result_or_not_whole_is_one_line_and_exit_2(
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


def shown(page: Path) -> str:
    """The words of a page."""
    return " ".join(" ".join(Outline(page.read_text()).text).split())


@pytest.mark.parametrize(
    ("document", "program", "figure"),
    [
        (legacy(), "kv-cache.py", "Cache hit rate"),
        ({"tokens_per_second": 4321.5, "backend": "lmcache", "elapsed_time": 6.5}, "lmcache", "4,321.50"),
        ({"tokens_per_second": 4321.5, "num_requests": 500}, "inference engine", "4,321.50"),
    ],
)
def test_results_of_other_programs_have_a_page_without_a_verdict(
    tmp_path: Path, document: Any, program: str, figure: str
) -> None:
    path, page = write(tmp_path / "theirs.json", document), tmp_path / "p.html"
    assert main(["report", str(path), "-o", str(page)]) == 0
    text = shown(page)
    assert f"Figures of {program}, as it wrote them; kvspill has no verdict on them." in text
    assert "kvspill did not make this result, so it checked nothing." in text
    assert figure in text
    assert "None" not in text


def test_a_directory_stands_for_the_results_in_it_ours_and_others(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.json", sample.result())
    write(folder / "b.json", legacy())
    page, table = tmp_path / "p.html", tmp_path / "t.csv"
    assert main(["report", str(folder), "-o", str(page), "--csv", str(table)]) == 0
    assert [row["Filename"] for row in csv.DictReader(table.open())] == ["a", "b"]


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two small simulated suites of the same rows on different devices."""
    folder = tmp_path_factory.mktemp("suites")
    rows = ["storage-only", "cpu-storage", "production"]
    common = [*rows, "--simulate", "--quick", "--quiet", "--tier-seconds", "20", "--production-seconds", "20"]
    for name, profile in (("slow", "nvme-gen4"), ("fast", "nvme-gen5")):
        flags = ["--device-profile", profile, "--output-dir", str(folder / name)]
        assert main(["suite", *common, *flags]) == 0
    return folder / "slow", folder / "fast"


def test_a_suite_is_one_page_with_its_advice(suites: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    assert main(["report", str(suites[0]), "-o", str(page)]) == 0
    text = shown(page)
    for line in json.loads((suites[0] / "summary.json").read_text())["advice"]:
        assert " ".join(line.split()) in text
    assert text.index("What this means for the modelled devices") < text.index("How far to trust this")
    assert "storage-only" in text


def test_two_suites_stand_row_beside_row(suites: tuple[Path, Path], tmp_path: Path) -> None:
    page, table = tmp_path / "p.html", tmp_path / "t.csv"
    assert main(["report", *map(str, suites), "-o", str(page), "--csv", str(table)]) == 0
    names = [row["Filename"] for row in csv.DictReader(table.open())]
    rows = ("storage-only", "cpu-storage", "production")
    assert names == [f"{row} ({suite})" for row in rows for suite in ("slow", "fast")]


def test_the_rows_of_suites_count_for_the_results_that_a_page_can_show(
    suites: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(given, "FILES_MAX", 5)
    page, table = tmp_path / "p.html", tmp_path / "t.csv"
    assert main(["report", *map(str, suites), "-o", str(page)]) == 2
    assert "6 results are more than a page can show (5)" in capsys.readouterr().err
    assert main(["report", *map(str, suites), "--csv", str(table)]) == 0
    assert len(list(csv.DictReader(table.open()))) == 6


def test_compare_takes_suites(suites: tuple[Path, Path], capsys: Printed) -> None:
    capsys.readouterr()
    assert main(["compare", str(suites[0])]) == 0
    assert "01-storage-only" in capsys.readouterr().out
    assert main(["compare", *map(str, suites)]) == 0
    said = capsys.readouterr().out
    assert "against A" in said
    assert "nvme-gen5" in said


def test_a_row_that_did_not_run_is_named_and_a_faulty_one_does_not_stop_the_page(
    suites: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "partly"
    shutil.copytree(suites[0], folder)
    (folder / "02-cpu-storage.json").unlink()
    document = json.loads((folder / "03-production.json").read_text())
    document["faulty"] = True
    document["faults"]["failed_requests"] = 3
    write(folder / "03-production.json", document)
    page = tmp_path / "p.html"
    assert main(["report", str(folder), "-o", str(page)]) == 0
    text = shown(page)
    assert "cpu-storage: pending" in text
    assert "production is faulty: 3 failed requests" in text


def test_a_suite_without_a_result_is_refused_with_what_to_do(
    suites: tuple[Path, Path], tmp_path: Path, capsys: Printed
) -> None:
    folder = tmp_path / "empty"
    shutil.copytree(suites[0], folder)
    for path in folder.glob("0*.json"):
        path.unlink()
    for command in ("report", "compare"):
        assert main([command, str(folder), "-o", str(tmp_path / "out")]) == 2
        assert f"run `kvspill suite --resume {folder}` first" in capsys.readouterr().err
    (folder / "manifest.json").write_text("{}")
    assert main(["report", str(folder), "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"kvspill: error: {folder}: manifest.json cannot be read")
