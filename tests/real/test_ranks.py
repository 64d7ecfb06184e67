"""Several ranks under a real MPI launcher: one load, one result (R1-R4)."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kvspill.measure.histograms import Histogram
from real.mpi import KVSPILL, MPIRUN, NEEDS_MPI, done, ranks
from real.rig import left_over, start

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
    assert "mpirun -n 2 kvspill run " in two["command"]


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
    # Whichever rank comes first.
    late = "import os, time; time.sleep(3 - 3 * int(os.environ['OMPI_COMM_WORLD_RANK']))\n"
    (hidden / "mpi4py.py").write_text(f"{late}raise ImportError('hidden')\n")
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
    words += ["--request-rate", "50"]
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


def test_ranks_that_cannot_see_each_others_files_make_one_result_r3(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    cache = tmp_path / "cache"
    cache.mkdir()
    # Each rank has a name space of its own, with a disk in memory that no other one has.
    words = 'mount -t tmpfs -o size=200m none "$0" && exec "$@"'
    under = (MPIRUN, "-n", "2", "unshare", "--mount", "sh", "-c", words, str(cache))
    work = ("--max-requests", "40", "--arrival", "open", "--storage-capacity-gb", "0.1")
    finished = done(start(tmp_path, cache, *work, under=under))
    assert finished.result["requests_completed"] == 40
    assert [row["requests_completed"] > 0 for row in finished.result["ranks"]["rows"]] == [True, True]
    limit_bytes = finished.result["tiers"][-1]["limit_bytes"]
    assert limit_bytes == 2 * int(0.1 * (1 << 30)), "each has a file system of its own: nothing is divided"
    assert not any(cache.iterdir())


SUITE = """\
scenarios:
  - name: fixed
    title: fixed work
    config: {model: tiny-1b, num_users: 4, max_requests: 6, request_rate: 50, trials: 2,
      generation_mode: none, cpu_mem_gb: 0}
  - name: search
    title: search
    config: {model: tiny-1b, num_users: 2, duration: 6, enable_autoscaling: true, autoscaler_mode: capacity,
      autoscaler_interval: 0.1, autoscaler_stage: 0.3, max_users: 8, generation_mode: none, cpu_mem_gb: 0,
      personas: {coding: {weight: 0}, document: {weight: 0},
        chatbot: {context: [16, 48], generate: [20, 60], think: [0.002, 0.004]}}}
"""


def test_a_suite_with_trials_and_a_search_runs_on_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(SUITE)
    (tmp_path / "cache").mkdir()
    words = ["suite", "my.yaml", "--cache-dir", "cache", "--output-dir", "out"]
    words += ["--storage-capacity-gb", "0.5"]
    found = subprocess.run(
        [MPIRUN, "-n", "2", *KVSPILL, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    fixed = json.loads((tmp_path / "out" / "01-fixed.json").read_text())
    assert (fixed["ranks"]["size"], fixed["trials"]["complete"]) == (2, 2)
    assert len({row["digest"] for row in fixed["trials"]["rows"]}) == 1
    search = json.loads((tmp_path / "out" / "02-search.json").read_text())
    assert search["ranks"]["size"] == 2
    assert search["autoscaling_stats"][-1]["action"] == "stop"
    assert any(step["users"] > 2 for step in search["autoscaling_stats"][:-1])
    assert found.stdout.count("WHAT THIS MEANS") == 1
