"""Operations in flight: whoever ends a run waits until the last of them has been reported."""

import asyncio


class InFlight:
    """Counts operations: `with` around each of them, and `over` to wait until there is none."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._count += 1
        self._none.clear()

    def __exit__(self, *_error: object) -> None:
        self._count -= 1
        if self._count == 0:
            self._none.set()

    async def over(self) -> None:
        await self._none.wait()
