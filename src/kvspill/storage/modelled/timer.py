"""The timer of a modelled device: it wakes the device when the next thing there is due."""

import asyncio
from collections.abc import Callable

from kvspill.records import NS_PER_SEC


class Timer:
    """One timer for the earliest of what it was set to. It may ring too early, never too late."""

    def __init__(self, clock_ns: Callable[[], int], wake: Callable[[], None]):
        self._clock_ns = clock_ns
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Asked for once: asyncio looks at the process's number each time, which is a system call."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def set(self, due_ns: float) -> None:
        loop = self.loop
        when = loop.time() + max(0.0, due_ns - self._clock_ns()) / NS_PER_SEC
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
