"""Work that may hang: done on a thread of its own, and waited for only so long."""

import errno
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from kvspill.threads import Daemon

T = TypeVar("T")

_HURRIED_SECONDS: Final = 2.0
_HURRIED_SECONDS_MIN: Final = 0.8
"""For what begins late after a signal: a command ends within 3 s, and removing files takes some of them."""
_INTERRUPTED_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.05
_hurry_since: float | None = None


def hurry(*, on: bool) -> None:
    """A signal ends the command, or the command has ended."""
    global _hurry_since
    _hurry_since = time.monotonic() if on else None


def hurried_for() -> float:
    """Seconds since the signal that ends the command; 0 where none came."""
    return 0.0 if _hurry_since is None else time.monotonic() - _hurry_since


def within(seconds: float, work: Callable[[], T]) -> T:
    """What work returns or raises, or a TimeoutError after so many seconds: it is left to itself then.

    A signal that ends the command leaves it a moment. The end of the program does not wait for it.
    """
    answers: list[T] = []
    failures: list[BaseException] = []
    over = threading.Event()

    def attempt() -> None:
        try:
            answers.append(work())
        except BaseException as error:
            failures.append(error)
        over.set()

    try:
        Daemon(attempt, "kvspill-within").start()
    except RuntimeError:
        # No further thread is to be had.
        return work()
    try:
        waited = wait_for(over.wait, seconds)
    except KeyboardInterrupt:
        over.wait(_INTERRUPTED_SECONDS)
        raise
    if failures:
        raise failures[0]
    if waited is not None and not answers:
        raise TimeoutError(errno.ETIMEDOUT, f"nothing came back within {waited:.3g} s")
    return answers[0]


def wait_for(
    over: Callable[[float], bool], seconds: float, hurried: float = _HURRIED_SECONDS
) -> float | None:
    """Wait until something is over, or so many seconds; returns the latter where it is not, else None.

    over: waits itself for a while, and says whether it is. hurried: seconds left where a signal comes.
    """
    began = time.monotonic()
    while not over(min(_LOOK_SECONDS, seconds)):
        waited = time.monotonic() - began
        if _hurry_since is not None:
            left = max(_hurry_since - began + hurried, min(hurried, _HURRIED_SECONDS_MIN))
            seconds = min(seconds, left)
        if waited >= seconds:
            return seconds
    return None
