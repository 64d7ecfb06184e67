"""Time and randomness: the real clock, or a virtual one that jumps from event to event."""

import asyncio
import hashlib
import math
import selectors
import time
from _random import Random
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from kvspill.records import NS_PER_SEC

T = TypeVar("T")


class Deadlock(RuntimeError):  # noqa: N818 - names the condition
    """Every task waits and no timer is set: in virtual time nothing can ever happen again."""


class World:
    """What control logic may know of time and chance. Give one to whatever needs it."""

    def __init__(self, seed: int, clock_ns: Callable[[], int] = time.monotonic_ns, virtual: bool = False):
        self.seed = seed
        self.virtual = virtual
        self.now_ns = clock_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        """Wait; a duration of zero or less only lets others run."""
        await asyncio.sleep(max(0, duration_ns) / NS_PER_SEC)

    async def sleep_until_ns(self, when_ns: int) -> None:
        """Wait until the clock shows when_ns; returns at once if it already does."""
        delay_ns = when_ns - self.now_ns()
        if delay_ns > 0:
            await asyncio.sleep(delay_ns / NS_PER_SEC)

    def rng(self, *names: str | int) -> Random:
        """An independent stream for these names: another consumer never shifts it.

        It has only the `random()` of random.Random, on which all Python versions agree. The class below
        random.Random is seeded once and not twice: most of what a user takes to start is the seeding.
        """
        text = "\x1f".join(str(part) for part in (self.seed, *names))
        return Random(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))


class _VirtualSelector(selectors.SelectSelector):
    """Advances a clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task is waiting and no timer is set")
        if timeout > 0:
            # A hair below the next nanosecond is rounding, not time.
            self.now_ns += max(1, math.ceil(timeout * NS_PER_SEC - 1e-3))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time; anything that would leave it for a thread is refused (E8)."""

    def __init__(self) -> None:
        self._virtual_selector = _VirtualSelector()
        super().__init__(self._virtual_selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual_selector.now_ns / NS_PER_SEC

    def now_ns(self) -> int:
        return self._virtual_selector.now_ns

    def idle_until(self) -> float:
        """Until then nothing happens but what is set off now; the time itself where something is ready."""
        if self._ready:  # type: ignore[attr-defined]
            return self.time()
        timers = self._scheduled  # type: ignore[attr-defined]
        return float(timers[0].when()) if timers else math.inf

    def run_in_executor(self, *_args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("no threads in virtual time: use a modelled backend")


def run_real(main: Callable[[World], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run main under the real clock."""
    return _run(asyncio.Runner(), main, World(seed))


def run_virtual(main: Callable[[World], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run main in virtual time: as fast as the machine computes, the same every time."""
    loop = VirtualLoop()
    return _run(asyncio.Runner(loop_factory=lambda: loop), main, World(seed, loop.now_ns, virtual=True))


def _run(runner: asyncio.Runner, main: Callable[[World], Coroutine[Any, Any, T]], world: World) -> T:
    """A callback without memory has woken nobody: main, which may wait for it, ends with a MemoryError."""
    starved = False

    def heed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal starved
        if isinstance(context.get("exception"), MemoryError):
            starved = True
            loop.stop()
        else:
            loop.default_exception_handler(context)

    try:
        with runner:
            runner.get_loop().set_exception_handler(heed)
            return runner.run(main(world))
    except RuntimeError:
        if starved:
            raise MemoryError from None
        raise
