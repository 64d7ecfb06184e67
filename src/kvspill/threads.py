"""Daemon threads whose start never hangs, also where memory runs out."""

import threading
from collections.abc import Callable
from typing import Final

_BEGIN_SECONDS_MAX: Final = 2.0


class _Begun(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(_BEGIN_SECONDS_MAX if timeout is None else timeout)


class Daemon(threading.Thread):
    """A thread that the end of the program does not wait for.

    One that dies before it begins, for there is no memory for its first frame, tells nobody: threading waits
    for it without end.
    """

    def __init__(self, work: Callable[[], object], name: str):
        super().__init__(name=name, daemon=True)
        self._work = work
        self._taken = threading.Lock()
        """By the thread as it begins, or by who waits for that no longer: then it does nothing."""
        self._started = _Begun()

    def start(self) -> None:
        """As threading's; also a RuntimeError where the thread has not begun after a while."""
        super().start()
        if not self._started.is_set() and self._taken.acquire(blocking=False):
            raise RuntimeError("can't start new thread: it did not begin")

    def run(self) -> None:
        if self._taken.acquire(blocking=False):
            self._work()
