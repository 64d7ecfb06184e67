"""A device that hangs never passes: what hangs counts with its age and is a fault (S16), and the run ends."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from real.rig import entries, start, wait_for_entries

pytestmark = pytest.mark.real
SECONDS = 4.0
RUN = ("--duration", str(SECONDS), "--storage-capacity-gb", "0.06")


def hang_reads(cache_dir: Path) -> int:
    """Put a FIFO without a writer in the place of every entry: whoever opens it waits for ever."""
    hung = 0
    for path in entries(cache_dir):
        pipe = path.with_name("pipe.tmp")
        os.mkfifo(pipe)
        try:
            os.replace(pipe, path)
            hung += 1
        except OSError:
            pipe.unlink()
    return hung


def hung_run(tmp_path: Path, *flags: str) -> tuple[Any, float]:
    cache_dir = tmp_path / "disk"
    cache_dir.mkdir()
    run = start(tmp_path, cache_dir, *RUN, *flags)
    wait_for_entries(cache_dir, 20)
    began = time.monotonic()
    while time.monotonic() < began + SECONDS / 2:
        hang_reads(cache_dir)
        time.sleep(0.05)
    finished = run.finish()
    return finished, time.monotonic() - began


def test_every_read_that_hangs_is_a_fault_counts_with_its_age_and_the_run_ends(tmp_path: Path) -> None:
    finished, took_seconds = hung_run(tmp_path)
    assert took_seconds < SECONDS + 5.5
    assert finished.code == 1, finished.err
    result = finished.result
    assert result["faulty"] is True
    assert result["faults"]["stuck_io"]["threads"] > 0
    assert "the result is faulty and has no rank: " in finished.err
    assert "did not return, the oldest for " in finished.err
    (reads,) = [
        row for row in result["in_flight_at_end"] if (row["tier"], row["verb"]) == ("storage", "read")
    ]
    assert reads["count"] >= 4
    assert reads["oldest_ms"] > 1000
    assert result["summary"]["cache_stats"]["storage_read_p99_ms"] > 1000
