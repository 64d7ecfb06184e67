"""A trial has the memory of the one before: what tiers and buffers took is given back between them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

PEAK = """
import resource, sys
from kvspill.cli.main import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
LOAD = "--model tiny-1b --num-users 4 --duration 2 --cpu-mem-gb 0.5 --generation-mode none --quiet"


def peak_mib(folder: Path, trials: int) -> int:
    words = [
        "run",
        *LOAD.split(),
        "--trials",
        str(trials),
        "--cache-dir",
        ".",
        "--storage-capacity-gb",
        "0.25",
        "--output",
        f"{trials}.json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *words], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def test_several_trials_take_no_more_memory_than_one(tmp_path: Path) -> None:
    """Each kept its DRAM tier and its buffers until the end: four of 1 GiB took 3.9."""
    assert peak_mib(tmp_path, 3) < peak_mib(tmp_path, 1) + 128
