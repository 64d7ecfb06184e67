"""Processes that share out work end with the one that started them."""

import contextlib
import os
import signal
import subprocess
import sys
import time

OF_A_POOL = """
import os, time
from kvspill.workers import processes

with processes(2, int) as pool:
    for _ in range(2):
        pool.submit(time.sleep, {seconds})
    print("at work", flush=True)
    time.sleep(60)
"""


def ends_with_its_parent(seconds: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", OF_A_POOL.format(seconds=seconds)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        time.sleep(0.5)
        process.kill()
        # The workers hold the same pipe: it ends when they do.
        process.communicate(timeout=10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_a_worker_with_nothing_to_do_ends_when_its_parent_is_killed() -> None:
    """Idle workers waited for ever, and held the output that they had inherited."""
    ends_with_its_parent(0)


def test_a_worker_at_work_ends_when_its_parent_is_killed() -> None:
    ends_with_its_parent(60)
