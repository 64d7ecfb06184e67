"""Steps of the wall clock, as a time daemon makes them, change nothing: only the monotonic clock counts."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kvspill
from real.faulting import compiler
from real.rig import left_over, start, wait_for_entries

STEPPING = """\
import datetime, itertools, random, sys, time
from kvspill.cli.main import main
real_time, rng = time.time, random.Random(1)
time.time = lambda: real_time() + rng.choice([-7200, 0, 86400])
time.time_ns = lambda: int(time.time() * 1e9)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.real
def test_a_run_keeps_its_duration_whatever_the_wall_clock_does(tmp_path: Path) -> None:
    argv = ("--duration", "1.5", "--storage-capacity-gb", "0.06")
    finished = start(tmp_path, tmp_path, *argv, program=(sys.executable, "-c", STEPPING)).finish()
    assert finished.code == 0, finished.err
    assert finished.result["window"]["measured_seconds"] == pytest.approx(1.5, abs=0.01)
    assert finished.result["honesty"]["requests"]["completed"] > 0
    assert 0 <= finished.result["summary"]["end_to_end_latency_ms"]["max"] <= 1500
    assert left_over(tmp_path) == []


def test_nothing_asks_the_wall_clock_for_an_interval() -> None:
    """Wall-clock time may name files and stand in results; the doctor alone holds it against a store's."""
    asked = set()
    for path in Path(kvspill.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                if name in ("time.time", "time.time_ns", "time.clock_gettime"):
                    asked.add(f"{path.name}: {name}")
    # The one in main only looks whether there is any time to be had.
    assert asked == {"dates.py: time.time", "main.py: time.time"}


YEAR_14601 = 398_600_000_000
"""Python's own clock ends in 2262."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("no C compiler to build the library that sets the clock")
    library = tmp_path_factory.mktemp("clock") / "clockshim.so"
    source = Path(__file__).parent / "shim" / "clockshim.c"
    subprocess.run([str(compiler()), "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return library


def told(shim: Path, seconds: int, *words: str) -> tuple[str, ...]:
    return "env", f"LD_PRELOAD={shim}", f"KVSPILL_CLOCK={seconds}", *words


@pytest.mark.real
@pytest.mark.parametrize(
    ("seconds", "date"),
    [
        (YEAR_14601, "14601-02-17T"),
        # Years that a date can have are tried with a simulation below.
        pytest.param(0, "1970-01-01T", marks=pytest.mark.slow),
        (-5_000_000_000, "1811-07-23T"),
    ],
)
def test_a_clock_that_is_set_wrongly_during_a_run_costs_no_result(
    tmp_path: Path, shim: Path, seconds: int, date: str
) -> None:
    when = tmp_path / "when"
    argv = ("--duration", "1.5", "--storage-capacity-gb", "0.06")
    run = start(tmp_path, tmp_path, *argv, under=told(shim, seconds, f"KVSPILL_CLOCK_WHEN={when}"))
    wait_for_entries(tmp_path, 5)
    when.touch()
    finished = run.finish()
    assert finished.code == 0, finished.err
    assert finished.result["created_at"].startswith(date)
    assert left_over(tmp_path) == []


@pytest.mark.real
@pytest.mark.parametrize(
    ("seconds", "name"), [(YEAR_14601, None), (0, "19700101-"), (-5_000_000_000, "18110723-")]
)
def test_a_clock_of_any_year_ends_no_command_with_an_internal_error(
    tmp_path: Path, shim: Path, seconds: int, name: str | None
) -> None:
    """A workbook cannot be dated before 1980."""
    small = ("--model", "tiny-1b", "--num-users", "1", "--max-requests", "3", "--xlsx-output", "table.xlsx")
    finished = subprocess.run(
        [*told(shim, seconds, "TZ=UTC"), sys.executable, "-m", "kvspill", "simulate", *small],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "internal error" not in finished.stderr
    if name is None:
        beyond = "kvspill: error: the clock of this machine is beyond the year 2262; set it with `date`"
        assert (finished.returncode, finished.stderr.strip()) == (2, beyond)
        return
    assert finished.returncode == 1
    assert "it cannot hold the date of this machine's clock (1" in finished.stderr
    assert [path.name.startswith(name) for path in (tmp_path / "kvspill-results").iterdir()] == [True]
