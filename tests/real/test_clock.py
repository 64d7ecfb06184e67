"""Steps of the wall clock, as a time daemon makes them, change nothing: only the monotonic clock counts."""

import ast
import sys
from pathlib import Path

import pytest

import kvspill
from real.rig import left_over, start

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
    assert asked == {"asking.py: time.time"}
