"""A run's lease on its part of a remote store: its text, its renewal, and when the run counts as ended."""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvspill.machine.kernel import Kernel, boot_id, process_exists
from kvspill.storage.lanes import start_thread
from kvspill.threads import Daemon

RENEW_SECONDS: Final = 30.0
LEASE_SECONDS: Final = 120.0
"""A lease that was not renewed for so long is over: three renewals were missed by then."""
_KIND = "kvspill lease"


def lease_text(*, over: bool = False) -> bytes:
    """What the lease of this process says; over: the run has ended and is removing what it stored."""
    return json.dumps({"kind": _KIND, "home": _home(), "pid": os.getpid(), "over": over}).encode()


def is_over(text: bytes, age_seconds: float) -> bool:
    """Whether the run of a lease that was renewed so long ago has ended.

    What was renewed in time is over only where it says so itself, or its process lived here and is gone.
    """
    if age_seconds > LEASE_SECONDS:
        return True
    try:
        said = json.loads(text)
        home, pid, over = str(said["home"]), int(said["pid"]), bool(said["over"])
        return over or (home != "" and home == _home() and not process_exists(pid))
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError, OSError):
        # Anybody may have written it.
        return False


def _home() -> str:
    """Where process numbers mean the same: this start of this machine, and the container on it."""
    booted = boot_id()
    try:
        return f"{booted}/{os.stat(Kernel().proc / 'self' / 'ns' / 'pid').st_ino}" if booted else ""
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What cleaning found at an address, by the names of the runs."""

    removed: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    """Left alone: their lease is not over."""
    kept: tuple[str, ...] = ()
    """What could not be removed, with the reason."""


class Renewal:
    """A thread that renews a lease every 30 s for as long as the run lasts."""

    def __init__(self, renew: Callable[[], None], seconds: float = RENEW_SECONDS):
        self._renew = renew
        self._seconds = seconds
        self._over = threading.Event()
        self.failed = 0
        """Renewals that failed; the next one is tried in its time."""
        self._thread = Daemon(self._work, "kvspill-lease")

    def start(self) -> None:
        start_thread(self._thread)

    def _work(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._renew()
            except Exception:
                self.failed += 1

    def stop(self) -> None:
        """Renew no more. A renewal that hangs is not waited for long."""
        self._over.set()
        with contextlib.suppress(RuntimeError):
            self._thread.join(0.5)
