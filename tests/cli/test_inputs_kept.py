"""No command writes over what it reads, nor two outputs into one file, by whatever path they are named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvspill.cli.main import main

RUN = ["simulate", "--max-requests", "3", "--num-users", "1", "--generation-mode", "none", "--quiet"]
SAMPLES = Path(__file__).parents[2] / "src" / "kvspill" / "workload" / "samples"
PROFILE = "storage: {read_gib_per_sec: 1, write_gib_per_sec: 1}\n"
TRACE = '{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}\n' * 3

Another = Callable[[Path], Path]


def itself(path: Path) -> Path:
    return path


def with_dots(path: Path) -> Path:
    (path.parent / "sub").mkdir(exist_ok=True)
    return path.parent / "sub" / ".." / "." / path.name


def symlink(path: Path) -> Path:
    link = path.with_name(f"link{path.suffix}")
    link.symlink_to(path.name)
    return link


def hard_link(path: Path) -> Path:
    link = path.with_name(f"hard{path.suffix}")
    os.link(path, link)
    return link


def relative(path: Path) -> Path:
    return Path(path.name)


OTHER_PATHS = [itself, with_dots, symlink, hard_link, relative]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("another", OTHER_PATHS)
@pytest.mark.parametrize("flag", ["--output", "--xlsx-output", "--log-ops"])
@pytest.mark.parametrize(
    ("given", "name", "text"),
    [
        ("--config {}", "run", "num_users: 1\n"),
        ("--device-profile {}", "profile", PROFILE),
        ("--trace mooncake:{}", "trace", TRACE),
        ("--dataset-path {}", "talks", "[]"),
    ],
)
def test_a_run_never_writes_over_its_inputs(
    flag: str,
    given: str,
    name: str,
    text: str,
    another: Another,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ending = {"--output": ".yaml", "--xlsx-output": ".csv", "--log-ops": ".parquet"}[flag]
    source = tmp_path / f"{name}{ending}"
    source.write_text(text)
    target = another(source)
    before = contents(tmp_path)
    run = RUN[:3] + RUN[5:] if "config" in given else RUN
    assert main([*run, *given.format(source).split(), flag, str(target)]) == 2
    assert "is one of the inputs and would be lost; write to another file" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_the_second_file_of_a_log_counts_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x-requests.parquet").write_text(TRACE)
    assert main([*RUN, "--trace", "mooncake:x-requests.parquet", "--log-ops", "x.parquet"]) == 2
    assert "--log-ops x.parquet: its x-requests.parquet: is one of the inputs" in capsys.readouterr().err
    assert main([*RUN, "--output", "y-requests.parquet", "--log-ops", "y.parquet"]) == 2
    assert "is the same file as --output" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x-rank3.parquet", "x-rank1-requests.parquet"])
def test_the_logs_of_all_ranks_count_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every rank refuses, not only the one whose log it would be."""
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    (tmp_path / name).write_text(TRACE)
    words = ["run", *RUN[1:], "--cache-dir", ".", "--log-ops", "x.parquet"]
    for given in (["--trace", f"mooncake:{name}"], ["--output", name]):
        assert main([*words, *given]) == 2
        error = capsys.readouterr().err
        assert f"--log-ops x.parquet: its {name}: is " in error
    assert (tmp_path / name).read_text() == TRACE


def test_the_file_of_the_environment_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text("num_users: 1\n")
    monkeypatch.setenv("KVSPILL_CONFIG", "c.yaml")
    assert main([*RUN, "--output", "./c.yaml"]) == 2


def test_a_file_of_a_directory_that_is_read_counts_too(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "weka", tmp_path / "weka")
    before = contents(tmp_path)
    session = next((tmp_path / "weka").glob("*.json"))
    assert main([*RUN, "--trace", "weka:weka", "--output", str(session)]) == 2
    assert contents(tmp_path) == before


def test_outputs_that_are_one_file_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--output", "r.csv", "--xlsx-output", "./r.csv"]) == 2
    assert (
        "--xlsx-output ./r.csv: is the same file as --output r.csv; name another" in capsys.readouterr().err
    )
    (tmp_path / "a.csv").write_text("")
    hard = hard_link(tmp_path / "a.csv")
    assert main([*RUN, "--output", "a.csv", "--xlsx-output", str(hard)]) == 2
    (tmp_path / "new.csv").symlink_to("nowhere-yet.json")
    assert main([*RUN, "--output", "nowhere-yet.json", "--xlsx-output", "new.csv"]) == 2
    assert not (tmp_path / "nowhere-yet.json").exists()


def test_nothing_can_be_lost_in_a_device(tmp_path: Path) -> None:
    (tmp_path / "null.csv").symlink_to("/dev/null")
    assert main([*RUN, "--output", "/dev/null", "--xlsx-output", "null.csv"]) == 0


@pytest.mark.parametrize("flag", ["--output", "--xlsx-output", "--log-ops", "--io-trace-log"])
def test_a_run_never_waits_for_the_reader_of_a_named_pipe(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = {"--xlsx-output": ".csv", "--log-ops": ".parquet"}.get(flag, "")
    pipe = tmp_path / f"ff{ending}"
    os.mkfifo(pipe)
    assert main([*RUN, flag, str(pipe)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"kvspill: error: {flag} {pipe}: cannot be written (a named pipe")
    assert error.count("\n") == 1


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    for name in ("a", "b"):
        assert main([*RUN, "--output", str(folder / f"{name}.json")]) == 0
    return folder


@pytest.mark.parametrize("another", [itself, with_dots, symlink, hard_link])
def test_reports_and_comparisons_never_write_over_results(results: Path, another: Another) -> None:
    one, two = str(results / "a.json"), str(results / "b.json")
    target = str(another(results / "a.json"))
    before = contents(results)
    for command in (
        ["compare", one, "--", two, "-o", target],
        ["compare", one, two, "-o", target],
        ["compare", "--discover", one, two, "-o", target],
        ["compare", str(results), "-o", str(results / "a.json")],
        ["report", one, two, "-o", target],
        ["report", one, two, "--csv", target],
        ["report", one, two, "--xlsx", target],
        ["report", one, "-o", "same", "--csv", "./same"],
    ):
        assert main(command) == 2, command
    assert contents(results) == before


def test_reports_and_comparisons_never_wait_for_the_reader_of_a_named_pipe(results: Path) -> None:
    os.mkfifo("ff")
    one, two = str(results / "a.json"), str(results / "b.json")
    for command in (
        ["compare", one, two, "-o", "ff"],
        ["report", one, "-o", "ff"],
        ["report", one, "--csv", "ff"],
        ["report", one, "--xlsx", "ff"],
    ):
        assert main(command) == 2, command


def test_a_result_that_is_the_default_page_is_not_replaced(results: Path, tmp_path: Path) -> None:
    os.rename(results / "a.json", tmp_path / "report.html")
    assert main(["report", "report.html"]) == 2
    assert json.loads((tmp_path / "report.html").read_text())["requests_completed"] == 3


SUITE_ROW = """\
scenarios:
  - name: one
    config: {model: tiny-1b, num_users: 1, max_requests: 3, generation_mode: none, storage_capacity_gb: 1}
"""


def test_reports_never_write_over_what_a_suite_says_of_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(SUITE_ROW)
    assert main(["suite", "mine.yaml", "--simulate", "--quiet", "--output-dir", "out"]) == 0
    (tmp_path / "page.html").symlink_to("out/01-one.json")
    before = contents(tmp_path)
    for words in (["--csv", "out/summary.txt"], ["-o", "out/summary.txt"], ["-o", "page.html"]):
        assert main(["report", "out", *words]) == 2, words
        assert "is one of the inputs and would be lost" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("another", [itself, with_dots, hard_link])
@pytest.mark.parametrize(
    "name", ["01-one.json", "01-one.incomplete.json", "manifest.json", "summary.json", "summary.txt"]
)
@pytest.mark.parametrize("given", ["scenarios", "--device-profile {}", "--set trace=mooncake:{}"])
def test_a_suite_never_writes_over_its_inputs(
    given: str, name: str, another: Another, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    texts = {"scenarios": SUITE_ROW, "--device-profile {}": PROFILE, "--set trace=mooncake:{}": TRACE}
    (folder / name).write_text(texts[given])
    (tmp_path / "mine.yaml").write_text(SUITE_ROW)
    source = another(folder / name)
    words = [str(source)] if given == "scenarios" else ["mine.yaml", *given.format(source).split()]
    before = contents(tmp_path)
    assert main(["suite", *words, "--simulate", "--quiet", "--output-dir", "out"]) == 2
    lost = f"its {name}: is one of the inputs and would be lost"
    assert ("holds a suite already" if name == "manifest.json" else lost) in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "command",
    [
        ["curve", "--trace", "mooncake:sample"],
        ["plan", "--users", "3", "--option", "nvme-gen4"],
        ["report", "r.json"],
        ["validate", "lmcache"],
    ],
)
def test_a_page_replaces_no_other_file(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """plan and validate made HTML of somebody's notes."""
    notes = tmp_path / "pg.txt"
    notes.write_text("my notes\n")
    flag = "-o" if command[0] == "report" else "--page"
    assert main([*command, flag, "pg.txt"]) == 2
    assert f"exists and is no HTML page; choose another file with {flag}" in capsys.readouterr().err
    assert notes.read_text() == "my notes\n"


@pytest.mark.parametrize(
    ("learned", "words", "which"),
    [
        ("r.json", "", ""),
        ("r.json.part", "", ": its r.json.part"),
        ("r-check.json", "--check .", ": its r-check.json"),
    ],
)
def test_a_plan_does_not_replace_the_result_that_it_learns_from(
    tmp_path: Path, learned: str, words: str, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor by what it keeps beside its own: that removed it, or wrote over it."""
    assert main([*RUN, "--output", learned]) == 0
    before = (tmp_path / learned).read_bytes()
    plan = ["plan", "--learn", learned, "--users", "3", "--option", "nvme-gen4", "--quick"]
    assert main([*plan, "--output", "r.json", *words.split()]) == 2
    assert f"--output r.json{which}: is one of the inputs and would be lost" in capsys.readouterr().err
    assert (tmp_path / learned).read_bytes() == before


@pytest.fixture
def log(tmp_path: Path) -> Path:
    pytest.importorskip("pyarrow.parquet")
    assert main([*RUN, "--log-ops", "o.parquet", "--output", "o.json", "--cpu-mem-gb", "0"]) == 0
    return tmp_path / "o.parquet"


@pytest.mark.parametrize("plant", [os.symlink, os.link])
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--log-ops x.parquet", "x-requests.parquet"),
        ("--log-ops x.parquet --trials 2", "x-trial2.parquet"),
        ("--log-ops x.parquet --trials 2", "x-trial1-requests.parquet"),
        ("--io-trace-log x.csv --trials 2", "x-trial2.csv"),
    ],
)
def test_no_link_is_followed_under_a_name_that_nobody_gave(
    words: str, name: str, plant: Callable[[str, str], None], tmp_path: Path
) -> None:
    if "parquet" in words:
        pytest.importorskip("pyarrow.parquet")
    (tmp_path / "victim").write_text("precious")
    plant("victim", name)
    assert main([*RUN, *words.split(), "--output", "r.json"]) == 0
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / name).is_symlink()
    assert b"precious" not in (tmp_path / name).read_bytes()
    assert not list(tmp_path.glob(".kvspill-*"))


def test_a_log_goes_through_a_link_that_somebody_names(log: Path, tmp_path: Path) -> None:
    os.symlink("far.parquet", "link.parquet")
    assert main([*RUN, "--log-ops", "link.parquet", "--output", "r.json"]) == 0
    assert (tmp_path / "link.parquet").is_symlink()
    assert (tmp_path / "far.parquet").read_bytes()[:4] == log.read_bytes()[:4] == b"PAR1"


def test_an_export_never_writes_over_what_it_reads(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(log, "itself.iolog")
    os.symlink(log, "link.iolog")
    os.link(log, "hard.iolog")
    os.link("o-requests.parquet", "hard.jsonl")
    before = contents(log.parent)
    for words in (
        "fio itself.iolog -o itself",
        "fio o.parquet -o link",
        "fio o.parquet -o hard",
        "trace o.parquet -o o-requests.parquet",
        "trace o.parquet -o hard.jsonl",
    ):
        assert main(["export", *words.split()]) == 2, words
        assert "is one of the inputs and would be lost" in capsys.readouterr().err
    assert contents(log.parent) == before


def test_the_log_of_an_exported_replay_replaces_a_link_and_no_directory(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody named it: a link of that name might lead anywhere."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.symlink(victim, "link.iolog")
    assert main(["export", "fio", str(log), "-o", "link"]) == 0
    assert victim.read_text() == "precious"
    assert (tmp_path / "link.iolog").read_text().startswith("fio version 3 iolog")
    (tmp_path / "folder.iolog").mkdir()
    os.symlink("both.iolog", "both")
    for output, why in (
        ("folder", "its folder.iolog: is a directory"),
        ("both", "its both.iolog: is the same file as --output both"),
        ("/dev/null", "name a file"),
    ):
        assert main(["export", "fio", str(log), "-o", output]) == 2, output
        assert why in capsys.readouterr().err
    assert not (tmp_path / "folder").exists()
