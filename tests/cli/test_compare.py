"""`kvspill compare` from the command line: forms, exit codes, one line for every mistake."""

import csv
import io
import json
from pathlib import Path

import pytest

from kvspill.cli.compare import parse_percent
from kvspill.cli.main import main
from kvspill.errors import UsageError
from unit.report.compare.made import legacy, write

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Three runs of a fast system and three of one at half its speed."""
    folders = (tmp_path / "fast", tmp_path / "slow")
    for folder, speed in zip(folders, (2.0, 1.0), strict=True):
        folder.mkdir()
        for number in range(3):
            document = legacy(tokens=round(1000 * speed) + number, io_seconds=10.0)
            write(folder / f"run_trial{number}.json", document)
    return folders


def test_two_sides_give_differences_first_and_then_figures(sides: tuple[Path, Path], capsys: Printed) -> None:
    assert main(["compare", str(sides[1]), "--", str(sides[0])]) == 0
    text = capsys.readouterr().out
    assert text.index("## What differs in the set-up") < text.index("## Figures")
    line = next(line for line in text.splitlines() if line.startswith("| Storage Throughput"))
    assert [cell.strip() for cell in line.split("|")][1:6] == [
        "Storage Throughput (tokens/sec)",
        "higher",
        "100.10",
        "200.10",
        "2.00x",
    ]
    assert line.rstrip(" |").endswith("better")


def test_flags_may_stand_on_either_side(sides: tuple[Path, Path], capsys: Printed) -> None:
    fast, slow = map(str, sides)
    assert main(["compare", "--format", "json", slow, "--", fast]) == 0
    before = json.loads(capsys.readouterr().out)
    assert main(["compare", slow, "--", fast, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == before
    assert before["first_names"] == ["run_trial0", "run_trial1", "run_trial2"]


def test_csv_has_a_row_per_metric(sides: tuple[Path, Path], capsys: Printed) -> None:
    assert main(["compare", str(sides[0]), "--", str(sides[1]), "--format", "csv"]) == 0
    rows = {row["metric"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert rows["storage_throughput_tokens_per_sec"]["verdict"] == "worse"


def test_output_goes_to_a_file(sides: tuple[Path, Path], tmp_path: Path, capsys: Printed) -> None:
    target = tmp_path / "deep" / "c.md"
    assert main(["compare", str(sides[0]), "--", str(sides[1]), "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert target.read_text().startswith("# B (run_trial0")


def test_the_first_line_says_which_side_is_better_by_how_much_and_how_surely(
    sides: tuple[Path, Path], capsys: Printed
) -> None:
    assert main(["compare", str(sides[1]), "--", str(sides[0])]) == 0
    text = capsys.readouterr().out
    said = text.splitlines()[2]
    assert said.startswith("By what decides here, B against A: ")
    assert "Storage Throughput (tokens/sec) 2.00x (95 % interval 1.9" in said
    assert "geometric mean) B is" not in text


@pytest.mark.parametrize(("name", "begins"), [("c.json", "{"), ("c.csv", "metric,"), ("c.md", "# B (")])
def test_the_name_of_the_output_decides_its_form(
    name: str, begins: str, sides: tuple[Path, Path], tmp_path: Path
) -> None:
    assert main(["compare", str(sides[0]), "--", str(sides[1]), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text().startswith(begins)


def test_a_form_that_compare_does_not_write_is_refused(
    sides: tuple[Path, Path], tmp_path: Path, capsys: Printed
) -> None:
    target = tmp_path / "c.html"
    assert main(["compare", str(sides[0]), "--", str(sides[1]), "-o", str(target)]) == 2
    assert "compare writes Markdown (.md), CSV (.csv) or JSON (.json)" in capsys.readouterr().err
    assert not target.exists()


def test_a_result_is_never_overwritten_by_its_comparison(sides: tuple[Path, Path], capsys: Printed) -> None:
    mine = sides[0] / "run_trial0.json"
    before = mine.read_bytes()
    assert main(["compare", str(sides[0]), "--", str(sides[1]), "-o", str(mine)]) == 2
    assert "one of the inputs" in capsys.readouterr().err
    assert mine.read_bytes() == before


def test_a_loss_beyond_the_limit_is_exit_3_and_a_gain_is_0(sides: tuple[Path, Path], capsys: Printed) -> None:
    fast, slow = map(str, sides)
    assert main(["compare", fast, "--", slow, "--fail-if-slower", "5%"]) == 3
    captured = capsys.readouterr()
    assert "## Figures" in captured.out
    assert captured.err.startswith("kvspill: error: B is slower than A by more than 5 %: ")
    assert captured.err.count("\n") == 1
    assert main(["compare", slow, "--", fast, "--fail-if-slower", "5%"]) == 0


def test_one_run_a_side_cannot_pass_the_gate(sides: tuple[Path, Path], capsys: Printed) -> None:
    one = [str(side / "run_trial0.json") for side in sides]
    assert main(["compare", one[0], "--", one[1], "--fail-if-slower", "5"]) == 2
    captured = capsys.readouterr()
    assert captured.out.splitlines()[2] == (
        "No difference can be told: one run a side, so the spread is not known."
    )
    assert "cannot tell" not in captured.out
    assert "give two or more runs a side" in captured.err


def test_without_a_separator_trials_are_grouped_into_a_table(
    sides: tuple[Path, Path], capsys: Printed
) -> None:
    for number in range(3):
        (sides[0] / f"run_trial{number}.json").rename(sides[1] / f"quick_trial{number}.json")
    assert main(["compare", str(sides[1])]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[2].startswith(
        "quick leads in Storage Throughput (tokens/sec), 2.00x the slowest; "
    )
    rows = [line.split("|")[1:3] + line.split("|")[5:6] for line in text.splitlines() if "±" in line]
    assert [[cell.strip() for cell in row] for row in rows[1:3]] == [
        ["quick", "3", "2.00x"],
        ["run", "3", "1.00x"],
    ]


def test_discover_compares_systems_by_the_names_of_their_results(tmp_path: Path, capsys: Printed) -> None:
    for folder, speed in (("fast", 2), ("slow", 1)):
        (tmp_path / folder).mkdir()
        for users in (10, 20):
            name = f"mlperf_v3_storage_m_cpu0GB_qd0_gennone_users{users}.json"
            write(tmp_path / folder / name, legacy(tokens=1000 * speed))
    argv = ["compare", "--discover", str(tmp_path / "fast"), str(tmp_path / "slow")]
    assert main(argv) == 0
    assert "2 configurations ran on both systems (fast: 2 runs, slow: 2 runs)" in capsys.readouterr().out
    assert main([*argv, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["by"] for row in rows} == {"all", "cpu_mem", "model", "users", "cpu_mem_and_allocs"}
    assert main([*argv, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no results given"),
        (["--"], "no results given"),
        (["a.json", "--"], "a side of `--` is empty"),
        (["a.json", "--", "b.json", "--", "c.json"], "more than one `--`"),
        (["--discover", "a.json"], "--discover needs two systems"),
        (["--discover", "a.xlsx", "b.xlsx", "c.xlsx"], "--discover needs two systems"),
        (["--discover", "a.xlsx", "b.xlsx", "--fail-if-slower", "5%"], "--fail-if-slower judges two sides"),
        (["--discover", "a.xlsx", "b.xlsx", "--metric", "x"], "--metric judges two sides"),
        (["a.json", "--metric", "x"], "--metric needs two sides"),
        (["a.json", "--fail-if-slower", "5%"], "--fail-if-slower needs two sides"),
        (["a.json", "--", "b.json", "--fail-if-slower", "much"], "not a percentage"),
        (["a.json", "--", "b.json", "--format", "pdf"], "--format"),
        (["a.json", "--", "b.json", "--frobnicate"], "--frobnicate"),
        (["missing.json", "--", "b.json"], "missing.json: cannot be read"),
    ],
)
def test_every_mistake_is_one_line_and_exit_2(argv: list[str], said: str, capsys: Printed) -> None:
    assert main(["compare", *argv]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_one_run_alone_is_one_line_and_exit_2(tmp_path: Path, capsys: Printed) -> None:
    """A table of one row compares nothing, and a script would take its exit 0 for a comparison."""
    alone = write(tmp_path / "a.json", legacy())
    assert main(["compare", str(alone)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert f"{alone}: one run alone has nothing to be compared with; give a second result" in shown.err


def test_the_trials_of_one_result_can_be_compared(tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "r.json"
    words = ["--model", "tiny-1b", "--num-users", "2", "--duration", "10", "--trials", "2", "--quiet"]
    assert main(["simulate", *words, "--output", str(path)]) == 0
    assert main(["compare", str(path)]) == 0
    assert "r trial 2" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("5", 0.05), (" 0 % ", 0.0), ("12.5%", 0.125)])
def test_percentages_are_understood_with_and_without_the_sign(text: str, share: float) -> None:
    assert parse_percent(text) == share


@pytest.mark.parametrize("text", ["-1%", "100%", "nan", "inf", "", "5%%"])
def test_other_percentages_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a percentage"):
        parse_percent(text)
