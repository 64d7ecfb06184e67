"""kv-cache-wrapper.sh: each of its options reaches the suite, and its mistakes are one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

WRAPPER = Path(__file__).parents[2] / "kv-cache-wrapper.sh"


def wrapper(tmp_path: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        [str(WRAPPER), *argv], capture_output=True, text=True, cwd=tmp_path, env=environ, check=False
    )


def planned(tmp_path: Path, *argv: str) -> str:
    done = wrapper(tmp_path, *argv, "--", "--simulate", "--dry-run")
    assert done.returncode == 0, done.stderr
    return done.stdout


def line(text: str, name: str) -> str:
    found = re.search(rf"^{name} +(.*)$", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def test_no_option_plans_the_nine_of_llama_8b(tmp_path: Path) -> None:
    text = planned(tmp_path)
    assert line(text, "storage-only").startswith("llama3.1-8b, ")
    assert "120 s" in line(text, "gpu-only")
    assert "180 s" in line(text, "storage-saturation")
    assert "180 s" in line(text, "production")


def test_every_option_reaches_the_suite(tmp_path: Path) -> None:
    argv = "-m tiny-1b -t 11 -s 12 -r 13 -a 14 -u 5 -U 6 -D 7 -w storage-only,storage-saturation,production"
    text = planned(tmp_path, *argv.split())
    assert line(text, "storage-only").startswith("tiny-1b, 5 users, 11 s")
    assert line(text, "storage-saturation").startswith("tiny-1b, 6 users, 12 s")
    assert line(text, "production").startswith("tiny-1b, 5 users, 13 s")
    assert "autoscale 14 s" in text


def test_retrieval_is_added_or_named_as_missing(tmp_path: Path) -> None:
    text = line(planned(tmp_path, "-R", "-w", "storage-only"), "storage-only")
    assert "users" in text or text == "needs --enable-rag: not available in this version"


def test_a_model_may_stand_alone_but_not_twice(tmp_path: Path) -> None:
    assert line(planned(tmp_path, "tiny-1b"), "cpu-only").startswith("tiny-1b, ")
    twice = wrapper(tmp_path, "-m", "tiny-1b", "llama2-7b")
    assert (twice.returncode, twice.stderr.count("\n")) == (2, 1)


def test_a_second_word_is_told_that_there_is_one_model_only(tmp_path: Path) -> None:
    done = wrapper(tmp_path, "tiny-1b", "extra")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "extra: only one model at a time, and tiny-1b came first" in done.stderr


@pytest.mark.parametrize("argv", [[""], ["-m", ""], ["-w", ""], ["tiny-1b", "--", ""]])
def test_an_empty_word_starts_no_run(tmp_path: Path, argv: list[str]) -> None:
    done = wrapper(tmp_path, *argv)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert list(tmp_path.iterdir()) == []


def test_documents_without_retrieval_are_warned_about(tmp_path: Path) -> None:
    rest = ("--", "--simulate", "--dry-run")
    assert "--rag-num-docs 5 has no effect" in wrapper(tmp_path, "-D", "5", *rest).stderr
    assert "no effect" not in wrapper(tmp_path, "-R", "-D", "5", *rest).stderr
    assert "no effect" not in wrapper(tmp_path, "-w", "rag", "-D", "5", *rest).stderr


def test_help_names_every_option(tmp_path: Path) -> None:
    done = wrapper(tmp_path, "-h")
    assert done.returncode == 0
    for option in "mtsrawuURDh":
        assert re.search(rf"^  -{option} ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    "argv", [["-x"], ["-m"], ["-t", "soon"], ["-w", "nope"], ["-u", "0"], ["no-such-model"]]
)
def test_mistakes_are_one_line_and_exit_2(tmp_path: Path, argv: list[str]) -> None:
    done = wrapper(tmp_path, *argv)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "error: " in done.stderr


def test_a_piped_run_ends_with_the_table(tmp_path: Path) -> None:
    done = wrapper(tmp_path, "-m", "tiny-1b", "-w", "cpu-only", "-t", "5", "-u", "2", "--", "--simulate")
    assert done.returncode == 0
    assert "THROUGHPUT AND LATENCY" in done.stdout
    assert "\x1b" not in done.stdout
