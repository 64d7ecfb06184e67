"""Ends a program whose main thread hangs, in a system call or a plug-in, so that nobody acts on a signal."""

import contextlib
import os
import select
import signal
import time
from functools import partial
from pathlib import Path
from typing import Final

from kvspill.errors import INTERRUPTED, SIGNALS
from kvspill.threads import Daemon

_UNHEARD_SECONDS_MAX: Final = 2.3
"""A command ends within 3 s of the first signal."""
_LOOK_SECONDS: Final = 0.25
_WORKING_TICKS: Final = 10
"""Of 10 ms: a main thread that has computed for so long meanwhile does not hang."""
_heard = 0
_arrivals: int | None = None
"""A pipe that gets a byte for each signal, before its handler runs."""


def heard() -> None:
    """What sees to the end of the program has run: a handler of signals, or the loop that it set to it."""
    global _heard
    # What has come by now is seen by this handler or right after it.
    _take()
    _heard += 1


def end_unheard() -> None:
    """From now on a signal ends this program also where its main thread hangs."""
    global _arrivals
    # Without descriptors or threads to spare it goes without.
    with contextlib.suppress(OSError, RuntimeError):
        _arrivals, into = os.pipe()
        for fd in (_arrivals, into):
            os.set_blocking(fd, False)
        Daemon(partial(_watch, _arrivals), "kvspill-unheard").start()
        signal.set_wakeup_fd(into, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """What is sent to a child is not sent to its parent, which has the same pipe."""
    global _arrivals
    signal.set_wakeup_fd(-1)
    _arrivals = None


def _take() -> bytes:
    if _arrivals is not None:
        with contextlib.suppress(BlockingIOError):
            return os.read(_arrivals, 4096)
    return b""


def _watch(arrivals: int) -> None:
    # Blocked here, one that waits for a main thread which cannot be interrupted is seen as pending.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    while True:
        before = _heard
        came = _arrived(arrivals)
        while came is not None and _heard == before:
            until, ticks = time.monotonic() + _UNHEARD_SECONDS_MAX, _main_thread()[1]
            while _heard == before and time.monotonic() < until:
                time.sleep(_LOOK_SECONDS / 10)
            state, later = _main_thread()
            if _heard == before and state != "R" and later - ticks < _WORKING_TICKS:
                said = f"ended by {came.name}: a call does not return; check the disks and plug-ins named"
                os.write(2, f"kvspill: error: {said}\n".encode())
                os._exit(INTERRUPTED)


def _arrived(arrivals: int) -> signal.Signals | None:
    """The signal that came last, or waits to be taken; None where none did so in a while."""
    numbers = set(signal.sigpending())
    if select.select([arrivals], [], [], 0 if numbers else _LOOK_SECONDS)[0]:
        numbers |= set(_take())
    return next((number for number in SIGNALS if number in numbers), None)


def _main_thread() -> tuple[str, int]:
    """Its state and the ticks that it has computed for, as the kernel tells."""
    pid = os.getpid()
    try:
        # As bytes: the name in it may be cut within a letter.
        words = Path(f"/proc/{pid}/task/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "", 0
    return words[0].decode(), int(words[11]) + int(words[12])
