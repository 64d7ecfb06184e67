"""mlperf_wrapper.py: the harness's contract, with a kv-cache.py that only notes how it was started."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from real.rig import wait_until

ROOT = Path(__file__).parents[2]
LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "SLURM_")
STAND_IN = """\
import json, os, signal, sys, time
from pathlib import Path
words = sys.argv[1:]
value = lambda flag: words[len(words) - 1 - words[::-1].index(flag) + 1]
log = Path(__file__).with_name("log-" + Path(value("--cache-dir")).name)
def note(**what):
    with log.open("a") as file:
        file.write(json.dumps(what) + "\\n")
def end(number, _frame):
    note(signal=number)
    sys.exit(130)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
note(words=words, at=time.time(), cache=os.path.isdir(value("--cache-dir")), pid=os.getpid())
Path(value("--output")).write_text("{}")
if "--dirty" in words:
    Path(value("--cache-dir"), "mine").write_text("x")
if "--kill" in words:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(float(value("--sleep")) if "--sleep" in words else 0)
sys.exit(int(value("--exit")) if "--exit" in words else 0)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory as the harness wants it."""
    shutil.copy(ROOT / "mlperf_wrapper.py", tmp_path)
    (tmp_path / "kv-cache.py").write_text(STAND_IN)
    return tmp_path


def start(place: Path, *argv: str, **environ: str) -> "subprocess.Popen[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    base = ["--rank-output-base", str(place / "out"), "--rank-cache-base", str(place / "cache")]
    return subprocess.Popen(
        [sys.executable, "-S", "-E", str(place / "mlperf_wrapper.py"), *base, *argv],
        env={**kept, **environ},
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wrapped(place: Path, *argv: str, **environ: str) -> tuple[int, str]:
    process = start(place, "--start-delay", "0", "--end-delay", "0", *argv, **environ)
    _, err = process.communicate(timeout=30)
    return process.returncode, err


def notes(place: Path, rank: int = 0) -> list[dict[str, Any]]:
    path = place / f"log-rank_{rank}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_start(place: Path) -> None:
    wait_until(lambda: notes(place))


def test_the_run_gets_all_flags_and_the_ranks_own_seed_output_and_cache(place: Path) -> None:
    argv = ["--seed-base", "40", "--config", "c.yaml", "--model", "llama3.1-8b", "--seed", "7"]
    assert wrapped(place, *argv, OMPI_COMM_WORLD_RANK="3", PMI_RANK="1") == (0, "")
    (note,) = notes(place, 3)
    (output,) = (place / "out" / "rank_3").glob("kvcache_results_*.json")
    assert note["words"] == [
        *("--config", "c.yaml", "--model", "llama3.1-8b", "--seed", "7", "--ranks", "off"),
        *("--seed", "43", "--cache-dir", f"{place}/cache/rank_3", "--output", str(output)),
    ]
    assert note["cache"]
    assert not (place / "cache" / "rank_3").exists(), "the cache directory is empty afterwards"


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, 0),
        ({"PMI_RANK": "2"}, 2),
        ({"OMPI_COMM_WORLD_RANK": "", "PMI_RANK": "1"}, 1),
        ({"SLURM_PROCID": "4"}, 4),
    ],
)
def test_the_rank_is_the_launchers(place: Path, environ: dict[str, str], rank: int) -> None:
    assert wrapped(place, **environ) == (0, "")
    (note,) = notes(place, rank)
    assert note["words"][note["words"].index("--seed") + 1] == str(42 + rank)


@pytest.mark.parametrize(("flags", "code"), [(["--exit", "3"], 3), (["--exit", "1"], 1), (["--kill"], 137)])
def test_the_exit_code_is_passed_on(place: Path, flags: list[str], code: int) -> None:
    assert wrapped(place, *flags)[0] == code


def test_the_delays_are_waited_before_and_after_and_are_90_s_by_default(place: Path) -> None:
    begun = time.time()
    process = start(place, "--start-delay", "0.4", "--end-delay", "0.6")
    process.communicate(timeout=30)
    (note,) = notes(place)
    assert note["at"] - begun >= 0.4
    assert time.time() - note["at"] >= 0.6
    usual = start(place)
    assert usual.stdout is not None
    assert "90 s until the start" in usual.stdout.readline()
    usual.send_signal(signal.SIGTERM)
    usual.communicate(timeout=10)
    assert usual.returncode == 130
    assert len(notes(place)) == 1, "a run that was stopped before its start is not started"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_run_once_and_ends_the_delay(place: Path, number: signal.Signals) -> None:
    process = start(place, "--start-delay", "0", "--end-delay", "600", "--sleep", "60")
    wait_for_start(place)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert [note["signal"] for note in notes(place)[1:]] == [number]


def test_a_run_does_not_outlive_a_killed_wrapper(place: Path) -> None:
    process = start(place, "--start-delay", "0", "--end-delay", "0", "--sleep", "60")
    wait_for_start(place)
    process.kill()
    process.wait()
    wait_until(lambda: len(notes(place)) > 1)
    assert notes(place)[1:] == [{"signal": signal.SIGTERM}]


def test_a_directory_that_was_there_or_holds_files_stays(place: Path) -> None:
    (place / "cache" / "rank_0").mkdir(parents=True)
    assert wrapped(place)[0] == 0
    assert (place / "cache" / "rank_0").is_dir()
    assert wrapped(place, "--dirty", PMI_RANK="1")[0] == 0
    assert [path.name for path in (place / "cache" / "rank_1").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("argv", "environ", "said"),
    [
        (
            ["--end-delay", "-1"],
            {},
            "--end-delay: -1: not from 0 to 86400 seconds; `mlperf_wrapper.py --help` lists",
        ),
        (["--seed-base", "x"], {}, "--seed-base: invalid int value: 'x'"),
        ([], {"PMI_RANK": "one"}, "PMI_RANK='one': not a rank; unset it, or start with mpirun"),
        (["--cache-dir", "d"], {}, "--cache-dir: each rank has its own; give the directory around them as"),
    ],
)
def test_bad_input_is_one_line(place: Path, argv: list[str], environ: dict[str, str], said: str) -> None:
    code, err = wrapped(place, *argv, **environ)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert not notes(place)


def test_a_place_that_takes_no_directory_is_one_line(place: Path) -> None:
    (place / "out").write_text("a file")
    code, err = wrapped(place)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"mlperf_wrapper.py: error: {place}/out")
