"""Work on devices beside a run, as a probe is: a signal ends it in order, and nothing is left behind."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.records import NS_PER_SEC
from kvspill.result.schema_honesty import Caution
from kvspill.run.closing import close_all_now, close_within
from kvspill.run.progress import Progress
from kvspill.run.signals import Interrupts
from kvspill.storage.base import Backend
from kvspill.world import World, run_real

T = TypeVar("T")
_CLOSING_SECONDS = 1.5
"""After a signal: a command ends within 3 s of it."""
_CUTTING_OFF_SECONDS = 0.5
HUNG_SECONDS = 120.0
"""As --max-stall of a run."""
_LOOK_SECONDS = 1.0


class HungError(KvspillError):
    """A device does not answer."""

    def __init__(self, what: str = "a system call has not returned") -> None:
        super().__init__(f"{what} for {HUNG_SECONDS:g} s; check the device and the kernel log")


async def prepare_backend(backend: Backend) -> None:
    """Let a backend get ready; an error where it hangs in that."""
    getting_ready = asyncio.ensure_future(backend.prepare(lambda *_: None))
    try:
        if not (await asyncio.wait([getting_ready], timeout=HUNG_SECONDS))[0]:
            raise HungError("the storage has not become ready")
        getting_ready.result()
    finally:
        await _cut_off(getting_ready)


async def _cut_off(task: "asyncio.Future[Any]") -> None:
    """Cancel what is not over and wait for its end; an error that comes of being cut off says nothing."""
    task.cancel()
    if (await asyncio.wait([task], timeout=_CUTTING_OFF_SECONDS))[0] and not task.cancelled():
        task.exception()


async def _unless_it_hangs(main: Coroutine[Any, Any, T], world: World, opened: list[Backend]) -> T:
    """What main finds; an error where a system call has not returned for so long: nobody waits on."""
    work = asyncio.ensure_future(main)
    try:
        while not (await asyncio.wait([work], timeout=_LOOK_SECONDS))[0]:
            now_ns, older_than_ns = world.now_ns(), round(HUNG_SECONDS * NS_PER_SEC)
            if any(backend.stuck(now_ns, older_than_ns) for backend in opened):
                raise HungError
        return work.result()
    finally:
        await _cut_off(work)


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
        hangs = False
        try:
            found = await _unless_it_hangs(main(world, opened), world, opened)
        except HungError:
            hangs = True
            raise
        finally:
            seconds = None if interrupts.reason is None and not hangs else _CLOSING_SECONDS
            left += await close_within(seconds, opened, directories, progress, hangs, at_addresses)
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
