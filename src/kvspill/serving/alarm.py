"""A sleep that can be cut short."""

import asyncio

from kvspill.records import NS_PER_SEC


class Alarm:
    """Wakes one sleeper after a time, or as soon as somebody rings."""

    def __init__(self) -> None:
        self._rung: asyncio.Future[None] | None = None

    async def sleep_ns(self, duration_ns: int | None) -> None:
        """Sleep so long, or until it rings; None for as long as it does not."""
        loop = asyncio.get_running_loop()
        self._rung = loop.create_future()
        timer = None if duration_ns is None else loop.call_later(duration_ns / NS_PER_SEC, self.ring)
        try:
            await self._rung
        finally:
            if timer is not None:
                timer.cancel()

    def ring(self) -> None:
        if self._rung is not None and not self._rung.done():
            self._rung.set_result(None)
