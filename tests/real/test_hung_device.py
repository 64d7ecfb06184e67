"""A device that hangs never passes: what hangs counts with its age and is a fault (S16), and the run ends."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from real.faulting import compiler, shim
from real.rig import Run, entries, left_over, start, wait_for_entries, wait_until

pytestmark = pytest.mark.real
SECONDS = 3.0
HOLDS = ("--storage-capacity-gb", "0.06")


def hang_reads(run: Run, cache_dir: Path, seconds: float) -> None:
    """Put a FIFO without a writer in the place of every entry for a while: opening it takes for ever."""
    until = time.monotonic() + seconds
    while run.process.poll() is None and time.monotonic() < until:
        for path in entries(cache_dir):
            pipe = path.with_name("pipe.tmp")
            os.mkfifo(pipe)
            try:
                os.replace(pipe, path)
            except OSError:
                pipe.unlink()
        time.sleep(0.02)


def test_every_read_that_hangs_is_a_fault_counts_with_its_age_and_the_run_ends(tmp_path: Path) -> None:
    cache_dir = tmp_path / "disk"
    cache_dir.mkdir()
    run = start(tmp_path, cache_dir, "--duration", str(SECONDS), *HOLDS)
    wait_for_entries(cache_dir, 20)
    began = time.monotonic()
    hang_reads(run, cache_dir, SECONDS / 2)
    finished = run.finish()
    assert time.monotonic() - began < SECONDS + 5.5
    assert finished.code == 1, finished.err
    result = finished.result
    assert result["faulty"] is True
    stuck = result["faults"]["stuck_io"]
    assert stuck["threads"] > 0
    assert 4.0 <= stuck["oldest_seconds"] <= SECONDS + 4.5
    assert stuck == result["honesty"]["stuck_io"]
    assert "stuck_io" in {warning["code"] for warning in result["warnings"]}
    assert "the result is faulty and is not ranked: " in finished.err
    assert "did not return, the oldest for " in finished.err
    assert result["honesty"]["requests"]["unfinished"] >= stuck["threads"]
    assert result["window"]["drain_seconds"] <= 5
    (reads,) = [
        row for row in result["in_flight_at_end"] if (row["tier"], row["verb"]) == ("storage", "read")
    ]
    assert reads["count"] >= 4
    assert reads["oldest_ms"] > 1000
    assert result["summary"]["cache_stats"]["storage_read_p99_ms"] > 1000
    assert left_over(cache_dir) == []


def test_a_signal_after_the_window_shortens_the_wait_for_a_hung_device(tmp_path: Path) -> None:
    cache_dir = tmp_path / "disk"
    cache_dir.mkdir()
    run = start(tmp_path, cache_dir, "--duration", str(SECONDS), *HOLDS)
    wait_for_entries(cache_dir, 20)
    # Past the end of the window; the devices are waited for since.
    hang_reads(run, cache_dir, SECONDS + 0.3)
    run.send(signal.SIGTERM)
    began = time.monotonic()
    finished = run.finish()
    assert time.monotonic() - began < 3
    assert finished.code == 130, finished.err
    assert finished.result["incomplete"] is True, "nobody could see any more whether it hangs"
    assert left_over(cache_dir) == []


@pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults")
@pytest.mark.slow
@pytest.mark.parametrize("call", ["read", "open"])
@pytest.mark.parametrize("engine", ["threads", "io_uring"])
def test_a_signal_amid_the_load_ends_a_run_whose_every_call_hangs(
    tmp_path: Path, engine: str, call: str
) -> None:
    """A preloaded library sees no read of a ring, but the opening of its files."""
    cache_dir, count, when = tmp_path / "disk", tmp_path / "count", tmp_path / "when"
    cache_dir.mkdir()
    under = (
        "env",
        f"LD_PRELOAD={shim()}",
        f"KVSPILL_SHIM={call}:hang:1",
        f"KVSPILL_SHIM_UNDER={cache_dir}/kvspill-",
        f"KVSPILL_SHIM_WHEN={when}",
        f"KVSPILL_SHIM_COUNT={count}",
    )
    run = start(tmp_path, cache_dir, "--duration", "60", *HOLDS, "--io-engine", engine, under=under)
    wait_for_entries(cache_dir, 20)
    when.touch()
    if (engine, call) != ("io_uring", "read"):
        wait_until(lambda: count.exists() and count.stat().st_size)
    time.sleep(1.0)
    run.send(signal.SIGTERM)
    began = time.monotonic()
    finished = run.finish()
    assert time.monotonic() - began < 3
    assert finished.code == 130, finished.err
    assert finished.result["incomplete"] is True
    assert left_over(cache_dir) == []


def test_a_thread_that_hangs_too_long_ends_a_run_without_a_duration(tmp_path: Path) -> None:
    cache_dir = tmp_path / "disk"
    cache_dir.mkdir()
    run = start(tmp_path, cache_dir, "--max-requests", "100000", *HOLDS, "--max-stall", "1.5")
    wait_for_entries(cache_dir, 12)
    hang_reads(run, cache_dir, seconds=30)
    finished = run.finish(timeout=30)
    assert finished.code == 1
    assert finished.result["incomplete"] is True
    assert re.search(r"an I/O thread has hung for \d s, --max-stall is 1.5; check the device", finished.err)
    assert left_over(cache_dir) == []


@pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults")
@pytest.mark.parametrize("layout", ["files", pytest.param("tree", marks=pytest.mark.slow)])
def test_a_device_of_which_nothing_comes_back_ends_no_later_and_costs_no_result(
    tmp_path: Path, layout: str
) -> None:
    """Also what looks at the directory beside the load (S16): its mount, other runs, the removal."""
    cache_dir, armed = tmp_path / "disk", tmp_path / "armed"
    cache_dir.mkdir()
    verbs = ("path", "open", "read", "write", "sync", "rename", "unlink", "allocate")
    under = (
        "env",
        f"LD_PRELOAD={shim()}",
        f"KVSPILL_SHIM={','.join(f'{verb}:hang:1' for verb in verbs)}",
        f"KVSPILL_SHIM_UNDER={cache_dir}",
        f"KVSPILL_SHIM_WHEN={armed}",
    )
    load = ("--duration", "1.5", *HOLDS, "--layout", layout)
    run = start(tmp_path, cache_dir, *load, under=under)
    wait_for_entries(cache_dir)
    armed.touch()
    began = time.monotonic()
    finished = run.finish()
    assert time.monotonic() - began < 1.5 + 5.5
    assert finished.code == 1, finished.err
    assert finished.result["faults"]["stuck_io"]["threads"] > 0
    assert "did not return, the oldest for " in finished.err
    (directory,) = finished.result["environment"]["directories"]
    assert directory["filesystem"] is not None
    assert left_over(cache_dir) == []


@pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults")
def test_a_second_trial_that_cannot_begin_costs_the_first_nothing(tmp_path: Path) -> None:
    cache_dir, armed = tmp_path / "disk", tmp_path / "armed"
    cache_dir.mkdir()
    run = start(
        tmp_path,
        cache_dir,
        *("--duration", "1", "--trials", "2", "--max-errors", "10000000", *HOLDS),
        under=(
            "env",
            f"LD_PRELOAD={shim()}",
            "KVSPILL_SHIM=path:fail:1:5",
            f"KVSPILL_SHIM_UNDER={cache_dir}",
            f"KVSPILL_SHIM_WHEN={armed}",
        ),
    )
    wait_for_entries(cache_dir)
    armed.touch()
    finished = run.finish()
    assert finished.code == 1, finished.err
    assert finished.result["incomplete"] is True
    assert "the run ended early: trial 2 of 2: " in finished.err
    assert "Input/output error" in finished.err
