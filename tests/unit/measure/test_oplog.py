"""The row log holds every operation and request, also those outside the measured window."""

import os
import time
from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.measure import behind, oplog
from kvspill.measure.oplog import OpLog, requests_path
from kvspill.records import QoS, Request, RequestRecord
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial

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


def rows(log: OpLog, count: int) -> None:
    request = Request(0, 0, 0, QoS.BATCH, 0, 0, 1, 1, (), None, "chatbot")
    record = RequestRecord(request, 0, 0, 0, 0, 0, 0, 0, 0, None)
    for _ in range(count):
        log.request(record)


def test_a_file_that_cannot_be_made_is_said_and_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = OpLog(tmp_path / "file" / "ops.parquet")
    rows(log, 100_000)
    log.close()
    assert log.failure is not None
    assert "directory" in log.failure or "exists" in log.failure


def test_a_full_disk_is_said_and_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "ops.parquet").symlink_to("/dev/full")
    log = OpLog(tmp_path / "ops.parquet")
    rows(log, 100_000)
    log.close()
    assert log.failure == "No space left on device"


def test_a_disk_that_hangs_does_not_hold_up_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody reads hangs whoever opens it."""
    monkeypatch.setattr(behind, "_STALL_SECONDS_MAX", 0.1)
    os.mkfifo(tmp_path / "ops.parquet")
    log = OpLog(tmp_path / "ops.parquet")
    began = time.monotonic()
    rows(log, 300_000)
    log.close()
    assert log.failure is not None
    assert "nothing could be written" in log.failure
    assert time.monotonic() - began < 10


def test_an_error_of_the_encoder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such\ntype")

    monkeypatch.setattr(oplog._Table, "write", fail)
    log = OpLog(tmp_path / "ops.parquet")
    rows(log, 50_000)
    log.close()
    assert log.failure == "ValueError: no such type"
