"""A run that cannot be done is refused in one line, before a word is said and before anything is prepared."""

import json
import os
import threading
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.run import trial

Printed = pytest.CaptureFixture[str]
SMALL = "--model tiny-1b --num-users 2 --max-requests 4 --generation-mode none --cpu-mem-gb 0.25"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "disk").mkdir()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


WRONG = [
    ("--output /proc/x.json", "--output /proc/x.json: /proc takes no file ("),
    ("--output /sys/x.json", "--output /sys/x.json: /sys takes no file ("),
    ("--output folder", "--output folder: is a directory; name a file in it"),
    ("--log-ops folder", "--log-ops folder: is a directory; name a file in it"),
    ("--log-ops x.csv", "--log-ops x.csv: rows are written as Parquet; name a file that ends in .parquet"),
    ("--log-ops /proc/x.parquet", "--log-ops /proc/x.parquet: /proc takes no file ("),
    ("--xlsx-output foo.pdf", "--xlsx-output foo.pdf: neither .xlsx nor .csv; "),
    ("--xlsx-output /proc/x.csv", "--xlsx-output /proc/x.csv: /proc takes no file ("),
    ("--users 5", "--users 5: contradicts --num-users 2, which means the same; leave one of them out"),
    ("--servers 100000", "--servers 100000: out of range; give 1 to 10,000"),
    (
        "--trace mooncake:none.jsonl",
        "--trace mooncake:none.jsonl: cannot be read (No such file or directory); ",
    ),
    ("--dataset-path none.json", "--dataset-path none.json: cannot be read (No such file or directory); "),
    (
        "--enable-rag --rag-num-docs 50 --storage-capacity-gb 1",
        "--rag-num-docs 50: the documents' KV takes ",
    ),
]


@pytest.mark.parametrize(("flags", "start"), WRONG)
@pytest.mark.parametrize("command", ["run", "simulate"])
def test_every_refusal_comes_first_and_alone(
    command: str, flags: str, start: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(trial, "open_backends", lambda *_: pytest.fail("it was prepared"))
    device = ["--cache-dir", "disk"] if command == "run" else []
    assert main([command, *SMALL.split(), *device, *flags.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"kvspill: error: {start}")
    assert printed.err.count("\n") == 1
    assert sorted(path.name for path in place.rglob("*")) == ["disk", "folder"]


def test_a_pipe_to_which_nobody_writes_is_not_waited_for(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(place / "pipe")
    assert main(["simulate", "--trace", "mooncake:pipe", "--quiet", "--output", "r.json"]) == 2
    said = "--trace mooncake:pipe: cannot be read (a named pipe to which nobody writes); name a readable file"
    assert capsys.readouterr().err == f"kvspill: error: {said}\n"


def test_a_recording_from_a_pipe_is_left_for_the_run_to_read(place: Path) -> None:
    row = {"timestamp": 0, "input_length": 1000, "output_length": 10, "hash_ids": [1, 2]}
    os.mkfifo(place / "pipe")
    writer = threading.Thread(target=lambda: (place / "pipe").write_text(json.dumps(row) + "\n"))
    writer.start()
    flags = "--trace mooncake:pipe --replay-cycles 1 --model tiny-1b --quiet --output r.json"
    assert main(["simulate", *flags.split()]) == 0
    writer.join(10)
    assert json.loads((place / "r.json").read_text())["requests_completed"] == 1


@pytest.mark.parametrize("words", ["simulate --device-profile", "suite --dry-run --cache-dir", "clean"])
def test_a_name_too_long_is_one_line_and_exit_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "a" * 300]) == 2
    err = capsys.readouterr().err
    assert "internal error" not in err
    assert len(err.splitlines()) == 1


def test_an_empty_word_is_no_directory_to_clean(capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable of a script must not mean the current directory."""
    assert main(["clean", ""]) == 2
    assert "is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("process", ["-1", "0", "nan", "1e3", "99999999999"])
def test_a_cleaner_waits_for_a_process_and_nothing_else(process: str, capsys: Printed) -> None:
    assert main(["clean", f"--after={process}", "."]) == 2
    assert capsys.readouterr().err == (
        f"kvspill: error: --after {process}: not the number of a process; give 1 or more\n"
    )


def test_an_option_of_a_store_is_refused_where_a_directory_is_cleaned(capsys: Printed) -> None:
    assert main(["clean", "--s3-timeout", "nan", "."]) == 2
    assert "--s3-timeout: no effect on a directory" in capsys.readouterr().err


def test_a_plan_refuses_a_wrong_length_of_its_check_before_it_computes(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr("kvspill.plan.planning.plan", lambda *_: pytest.fail("it was computed"))
    words = "plan --users 4 --option nvme-gen4 --check-seconds nan --check disk"
    assert main(words.split()) == 2
    assert "--check-seconds nan: not a number from 5 to 86400" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["compare none.json -o", "report none.json --csv", "curve --output"])
def test_an_empty_name_is_no_output(words: str, place: Path, capsys: Printed) -> None:
    """It would be the current directory, beside which a temporary file was made before."""
    assert main([*words.split(), ""]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(path.name for path in place.rglob("*")) == ["disk", "folder"]


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize(
    "command",
    [
        "can --users 2 --model tiny-1b --cache-dir disk",
        "can --users 2 --model tiny-1b --simulate",
        "calibrate --cache-dir disk --output drive.yaml",
        "plan --users 2",
        "quick --cache-dir disk",
        "validate lmcache",
        "doctor disk",
        "simulate --num-users 2",
    ],
)
def test_what_one_process_does_is_refused_to_several_ranks_r1(
    command: str, rank: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    if rank == "0":
        assert main(command.split()) == 2
    else:
        with pytest.raises(SystemExit, match="2"):
            main(command.split())
    printed = capsys.readouterr()
    assert printed.out == ""
    # One of them speaks for all.
    assert printed.err.count("\n") == (rank == "0")
    if rank == "0":
        what = "a simulation" if command.startswith("simulate") else f"kvspill {command.split()[0]}"
        said = f"kvspill: error: 2 ranks: {what} is one process; start it without mpirun or srun"
        assert printed.err.startswith(said)
    assert sorted(path.name for path in place.rglob("*")) == ["disk", "folder"]
