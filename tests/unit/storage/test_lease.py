"""A lease is over when it says so, when it was not renewed, or when its process here is gone."""

import json
import os
import subprocess
import sys
import threading

import pytest

from kvspill.storage.lease import LEASE_SECONDS, Renewal, is_over, lease_text


def test_a_lease_that_was_renewed_in_time_is_not_over() -> None:
    assert not is_over(lease_text(), 0.0)
    assert not is_over(lease_text(), LEASE_SECONDS)


def test_a_lease_that_was_not_renewed_is_over_whatever_it_says() -> None:
    assert is_over(lease_text(), LEASE_SECONDS + 1)
    assert is_over(b"\0\0", LEASE_SECONDS + 1)


def test_a_run_that_removes_what_it_stored_says_that_its_lease_is_over() -> None:
    assert is_over(lease_text(over=True), 0.0)


def test_a_process_of_this_machine_that_is_gone_holds_no_lease() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    said = json.loads(lease_text())
    assert is_over(json.dumps({**said, "pid": ended.pid}).encode(), 0.0)


def test_a_process_of_another_machine_is_not_looked_for() -> None:
    said = json.loads(lease_text())
    for home in ("elsewhere/1", ""):
        assert not is_over(json.dumps({**said, "home": home, "pid": 2**22 + 1}).encode(), 0.0)


@pytest.mark.parametrize("pid", ["1e999", "NaN", "[" * 2000, "null", '"x"'])
def test_a_lease_of_nonsense_is_over_only_by_its_age(pid: str) -> None:
    """Anybody may write to a bucket; some of these were internal errors."""
    said = json.dumps({**json.loads(lease_text()), "pid": None}).replace("null", pid)
    assert not is_over(said.encode(), 0.0)
    assert is_over(said.encode(), LEASE_SECONDS + 1)


def test_a_text_that_is_no_lease_is_over_only_by_its_age() -> None:
    for text in (b"", b"{}", b"[1]", b'{"home": 1}', os.urandom(64)):
        assert not is_over(text, 0.0)


def test_a_lease_is_renewed_until_it_is_stopped_and_failures_are_counted() -> None:
    renewed = threading.Semaphore(0)

    def renew() -> None:
        renewed.release()
        raise OSError("the store is away")

    renewal = Renewal(renew, seconds=0.001)
    renewal.start()
    for _ in range(3):
        assert renewed.acquire(timeout=10)
    renewal.stop()
    assert renewal.failed >= 2


def test_a_time_of_thousands_of_digits_in_a_lease_ends_no_command() -> None:
    """Anybody may write to a server; the next run there ended with an internal error."""
    pytest.importorskip("redis")
    from kvspill.storage.redis.runs import _is_over

    assert not _is_over(b"9" * 5000 + b" -", 1e9)
    assert _is_over(b"1 -", 1e9)
