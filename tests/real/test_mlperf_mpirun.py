"""mlperf_wrapper.py under a real mpirun, as the MLPerf harness starts it, on a shared disk (R5, R6)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real.rig import SMALL_LOAD, file_system

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed"),
]

ROOT = Path(__file__).parents[2]


HEEDLESS = ("--mca", "orte_abort_on_non_zero_status", "0")
"""With this, which the harness passes, mpirun itself ends with 0 whatever its ranks do."""


def mpirun(
    where: Path, cache: Path, *argv: str, params: tuple[str, ...] = HEEDLESS
) -> "subprocess.CompletedProcess[str]":
    """Two ranks, started as the harness starts them."""
    (where / "load.yaml").write_text(SMALL_LOAD)
    launcher = ["mpirun", "-n", "2", "-host", "localhost:2", "--bind-to", "none", "--map-by", "node"]
    launcher += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    launcher += params
    wrapper = [sys.executable, str(ROOT / "mlperf_wrapper.py"), "--rank-output-base", str(where / "out")]
    wrapper += ["--rank-cache-base", str(cache), "--seed-base", "42", "--config", str(where / "load.yaml")]
    wrapper += ["--start-delay", "0", "--end-delay", "0", *argv]
    return subprocess.run(
        [*launcher, *wrapper], cwd=where, capture_output=True, text=True, timeout=120, check=False
    )


def rank_file(where: Path, rank: int) -> Any:
    (path,) = (where / "out" / f"rank_{rank}").glob("kvcache_results_*.json")
    return json.loads(path.read_text())


def test_two_ranks_share_a_disk_and_leave_it_empty(tmp_path: Path) -> None:
    with file_system(tmp_path / "disk", "ext4", 320 << 20) as cache:
        figures = os.statvfs(cache)
        done = mpirun(tmp_path, cache, "--duration", "5")
        left = [path.name for path in cache.iterdir()]
    assert done.returncode == 0, done.stderr
    assert left == ["lost+found"]
    for rank in range(2):
        result = rank_file(tmp_path, rank)
        assert (result["seed"], result["faulty"]) == (42 + rank, False)
        limit = next(tier["limit_bytes"] for tier in result["tiers"] if tier["tier"] == "storage")
        assert limit == pytest.approx(0.4 * figures.f_bavail * figures.f_frsize, rel=0.02)
        assert result["honesty"]["bytes"]["neighbours"] == 1
        assert "device_excess" not in {item["code"] for item in result["warnings"]}


def test_an_exit_code_comes_through(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    done = mpirun(tmp_path, tmp_path / "cache", "--duration", "0", params=())
    assert done.returncode == 2
    assert "--duration 0: out of range; give more than 0, at most 604,800 seconds" in done.stderr
