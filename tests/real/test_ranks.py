"""Several ranks under a real MPI launcher: one load, one result (R1-R4)."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kvspill.measure.histograms import Histogram
from real.mpi import KVSPILL, MPIRUN, NEEDS_MPI, done, ranks
from real.rig import left_over

pytestmark = NEEDS_MPI


def test_the_same_work_and_one_result_whatever_the_number_of_ranks_r1_r3(tmp_path: Path) -> None:
    results: dict[int, Any] = {}
    for number in (1, 2):
        work = ("--max-requests", "60", "--arrival", "open", "--storage-capacity-gb", "0.2")
        log = tmp_path / f"{number}.parquet"
        finished = done(ranks(number, tmp_path / str(number), *work, "--log-ops", str(log)))
        results[number] = finished.result
        assert left_over(tmp_path / str(number) / "cache") == []
    one, two = results[1], results[2]
    assert one["digest"] == two["digest"]
    assert one["requests_completed"] == two["requests_completed"] == 60
    assert one["ranks"] is None
    table = two["ranks"]
    assert [row["rank"] for row in table["rows"]] == [0, 1]
    assert sum(row["requests_completed"] for row in table["rows"]) == 60
    assert sum(row["users"] for row in table["rows"]) == 6
    assert table["start_skew_ms"] < 100
    assert two["histograms"]["storage_read_total"] == union_of(tmp_path, "2-rank0", "2-rank1")
    assert two["command"].startswith("mpirun -n 2 kvspill run ")


def union_of(folder: Path, *names: str) -> dict[str, Any] | None:
    """The histogram of the reads in the ranks' own logs."""
    histogram = Histogram()
    for name in names:
        for row in pq.read_table(folder / f"{name}.parquet").to_pylist():
            if row["verb"] == "read" and row["tier"] == "storage" and row["error"] is None:
                histogram.record(row["finished_ns"] - row["submitted_ns"])
    return histogram.to_dict()


def test_without_mpi4py_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "mpi4py.py").write_text("raise ImportError('hidden')\n")
    environ = os.environ | {"PYTHONPATH": f"{hidden}:{os.environ.get('PYTHONPATH', '')}"}
    words = [MPIRUN, "-n", "2", *KVSPILL, "run", "--max-requests", "1"]
    found = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    said = [line for line in found.stderr.splitlines() if "kvspill: error" in line]
    assert len(said) == 1
    assert "mpi4py" in said[0]
    assert "pip install" in said[0]
    assert not (tmp_path / "kvspill-results").exists()


def test_ranks_that_are_off_know_nothing_of_each_other_r6(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    words = ["run", "--ranks", "off", "--max-requests", "2", "--model", "tiny-1b", "--num-users", "2"]
    words += ["--generation-mode", "none", "--storage-capacity-gb", "0.5", "--cpu-mem-gb", "0"]
    found = subprocess.run(
        [MPIRUN, "-n", "2", *KVSPILL, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert len(list((tmp_path / "kvspill-results").iterdir())) == 2


def test_what_is_wrong_everywhere_is_said_once(tmp_path: Path) -> None:
    run = ranks(2, tmp_path, "--storage-capacity-gb", "900000", "--max-requests", "3")
    finished = run.finish(60.0)
    assert finished.code == 2
    assert finished.err.count("kvspill: error") == 1
    assert "--storage-capacity-gb" in finished.err
