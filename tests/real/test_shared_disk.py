"""Runs that share a disk divide its room and know each other's traffic (R5), without MPI (R6)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real.rig import SMALL_LOAD, file_system, wait_until

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
DISK_BYTES = 320 << 20


def start(where: Path, cache: Path, seconds: float, **environ: str) -> "subprocess.Popen[str]":
    config = where / "load.yaml"
    config.write_text(SMALL_LOAD)
    words = ["--rank-output-base", str(where / "out"), "--rank-cache-base", str(cache), "--start-delay", "0"]
    words += ["--end-delay", "0", "--config", str(config), "--duration", str(seconds)]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "mlperf_wrapper.py"), *words],
        env={**os.environ, **environ},
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]", where: Path, rank: int) -> Any:
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    (path,) = (where / "out" / f"rank_{rank}").glob("*.json")
    return json.loads(path.read_text())


def launch(rank: int) -> dict[str, str]:
    """What mpirun tells a rank of two."""
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    values = (rank, 2, rank, 2)
    found = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in zip(names, values, strict=True)}
    return {**found, "PMIX_NAMESPACE": "test-1"}


def storage_limit(result: Any) -> int:
    return int(next(tier["limit_bytes"] for tier in result["tiers"] if tier["tier"] == "storage"))


def codes(result: Any) -> set[str]:
    return {item["code"] for item in result["warnings"]}


def test_two_ranks_divide_a_disk_and_take_each_other_for_no_stranger(tmp_path: Path) -> None:
    with file_system(tmp_path / "disk", "ext4", DISK_BYTES) as cache:
        figures = os.statvfs(cache)
        free = figures.f_bavail * figures.f_frsize
        ranks = [start(tmp_path, cache, 5.0, **launch(rank)) for rank in range(2)]
        results = [finish(process, tmp_path, rank) for rank, process in enumerate(ranks)]
        left = [path.name for path in cache.iterdir()]
    for result in results:
        assert storage_limit(result) == pytest.approx(0.4 * free, rel=0.02), "half of 80 %"
        assert not result["faulty"]
        counted = result["honesty"]["bytes"]
        assert counted["neighbours"] == 1
        assert counted["neighbours_read_bytes"] > counted["asked_read_bytes"] / 10
        assert "device_excess" not in codes(result)
        assert 0.8 < counted["device_to_asked_read"] < 1.25
        assert 0.8 < counted["device_to_asked_written"] < 1.25
    assert left == ["lost+found"]


def test_a_run_of_its_own_leaves_another_its_room_and_is_not_called_a_stranger(tmp_path: Path) -> None:
    with file_system(tmp_path / "disk", "ext4", DISK_BYTES) as cache:
        first = start(tmp_path, cache, 9.0)
        wait_until(lambda: list(cache.glob("rank_0/kvspill-*/*/*")))
        second = start(tmp_path, cache, 2.0, PMI_RANK="1")
        results = [finish(process, tmp_path, rank) for rank, process in ((1, second), (0, first))]
    assert storage_limit(results[0]) <= 0.3 * storage_limit(results[1]), "80 % of the 20 % that were left"
    assert results[0]["honesty"]["bytes"]["neighbours"] == 1
    for result in results:
        assert not result["faulty"]
        assert "device_excess" not in codes(result)


def test_two_runs_of_their_own_that_start_together_both_end_well(tmp_path: Path) -> None:
    for attempt in range(2):
        where = tmp_path / str(attempt)
        where.mkdir()
        with file_system(where / "disk", "ext4", DISK_BYTES) as cache:
            figures = os.statvfs(cache)
            both = [start(where, cache, 3.0, SLURM_PROCID=str(rank)) for rank in range(2)]
            results = [finish(process, where, rank) for rank, process in enumerate(both)]
        limits = sorted(map(storage_limit, results))
        assert sum(limits) <= figures.f_bavail * figures.f_frsize
        assert limits[0] < 0.3 * limits[1], "80 % of what the first left"
        assert not any(result["faulty"] for result in results)
