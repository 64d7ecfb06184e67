"""The row log holds every operation and request, also those outside the measured window."""

from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.measure.oplog import OpLog, requests_path
from kvspill.run.progress import Progress
from kvspill.run.trial import Plan, run_trial

parquet = pytest.importorskip("pyarrow.parquet")


def test_the_log_agrees_with_the_result(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    config = Config(
        model="tiny-1b", num_users=5, max_requests=40, cpu_mem_gb=0, generation_mode="none", log_ops=str(path)
    )
    result = run_trial(Plan(config, simulated=True, storage_bytes=1 << 40), Progress(quiet=True)).document()
    ops = parquet.read_table(path).to_pylist()
    requests = parquet.read_table(requests_path(path)).to_pylist()
    assert len(requests) == result["requests_completed"] == 40
    assert sum(row["generated_tokens"] for row in requests) == result["total_tokens_generated"]
    read = sum(row["nbytes"] for row in ops if row["verb"] == "read")
    assert read == result["summary"]["cache_stats"]["total_read_bytes"]
    assert min(row["intended_ns"] for row in requests) >= 0
    assert all(row["error"] is None for row in ops)


def test_a_file_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--log-ops .*give another file"):
        OpLog(tmp_path / "missing" / "ops.parquet")
