"""Work on devices beside a run, as a probe is: a signal ends it in order, and nothing is left behind."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kvspill.config import Config
from kvspill.result.schema_honesty import Caution
from kvspill.run.closing import close_all_now, close_within
from kvspill.run.progress import Progress
from kvspill.run.signals import Interrupts
from kvspill.storage.base import Backend
from kvspill.world import World, run_real

T = TypeVar("T")
_CLOSING_SECONDS = 1.5
"""After a signal: a command ends within 3 s of it."""


def run_device_work(
    main: Callable[[World, list[Backend]], Coroutine[Any, Any, T]],
    seed: int,
    directories: Sequence[Path],
    progress: Progress,
    at_addresses: Config | None = None,
) -> tuple[T, list[Caution]]:
    """What main finds under the real clock, and what could not be removed.

    main adds the backends that it opens to a list, and they are closed whatever happens.
    """
    interrupts, opened = Interrupts(), list[Backend]()

    async def watched(world: World) -> tuple[T, list[Caution]]:
        interrupts.watch(asyncio.current_task())
        if interrupts.reason is not None:
            raise asyncio.CancelledError
        left: list[Caution] = []
        try:
            found = await main(world, opened)
        finally:
            seconds = None if interrupts.reason is None else _CLOSING_SECONDS
            left += await close_within(seconds, opened, directories, progress, at_addresses=at_addresses)
        return found, left

    with interrupts.handled():
        try:
            return run_real(watched, seed)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            interrupts.watch(None)
            progress.end_block()
            # Does nothing but where a second signal cut the closing short.
            close_all_now(opened)
