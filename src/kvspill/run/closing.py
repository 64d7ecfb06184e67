"""Closes the backends of a run, all of them whatever happens, and says what could not be removed."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from kvspill.config import Config
from kvspill.config.plugged import usable_plugins
from kvspill.errors import KvspillError
from kvspill.plugins import Kind
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.known import noted
from kvspill.run.cleaner import start_address_cleaner, start_cleaner
from kvspill.run.progress import Progress
from kvspill.run.stores import own_addresses
from kvspill.storage.addresses import backend_of
from kvspill.storage.base import LEFT_BEHIND, PLUGIN_FAILED, Backend


async def close_within(
    seconds: float | None,
    backends: list[Backend],
    directories: Sequence[Path],
    progress: Progress,
    hangs: bool = False,
    at_addresses: Config | None = None,
) -> list[Caution]:
    """Close every backend, but let no user wait long for the removal of much data.

    Where it takes longer than that, another process does it once this one has ended. Where no other can be
    started, the removal is waited for after all, unless the device hangs.
    at_addresses: the configuration whose --cache-dir names addresses, where it does.
    """
    closing = asyncio.ensure_future(close_all(backends, progress))
    ended, _waiting = await asyncio.wait({closing}, timeout=seconds)
    if ended:
        return closing.result()
    reasons = {f"files in {directory}": start_cleaner(directory) for directory in directories}
    left: list[Caution] = []
    for address in () if at_addresses is None else own_addresses(at_addresses):
        assert at_addresses is not None
        backend = backend_of(usable_plugins()[Kind.BACKEND], address)
        if backend.clean is None:
            message = f"The run's objects at {address} may stay: the backend {backend.name} has not closed."
            left.append(noted(LEFT_BEHIND, message, "See its documentation for how to remove them."))
        else:
            reasons[f"objects at {address}"] = start_address_cleaner(at_addresses, address)
    why = next((reason for reason in reasons.values() if reason is not None), None)
    if why is not None and not hangs:
        progress.say(f"waiting for the removal of files: no other process can do it ({why})")
        return await closing
    backends.clear()
    for what, reason in reasons.items():
        place = what.split(" ", 2)[2]
        if reason is None:
            progress.say(
                f"The run's {what} are removed in the background; should any be left, "
                f"`kvspill clean {place}` removes them."
            )
        else:
            message = f"The run's {what} stay: no other process can remove them ({reason})."
            left.append(noted(LEFT_BEHIND, message, f"Run `kvspill clean {place}` later."))
    _say(left, progress)
    return left


async def close_all(backends: list[Backend], progress: Progress) -> list[Caution]:
    """Close every backend; returns a warning where something stays behind. A failure costs no result."""
    left: list[Caution] = []
    for backend in list(backends):
        try:
            await _close(backend)
        except Exception as error:
            # Of any kind, as a store may answer anything and a plug-in raise anything. It is asked but once.
            backends.remove(backend)
            why = f"{type(error).__name__}: {error}"
            message = f"A tier could not be closed ({why}): what it stored may stay."
            left.append(noted(LEFT_BEHIND, message, "Run `kvspill clean` on its directory or address."))
        left += [noted(*note) for note in backend.notes() if note.code in (LEFT_BEHIND, PLUGIN_FAILED)]
    _say(left, progress)
    return left


async def _close(backend: Backend) -> None:
    try:
        await backend.close()
    except (OSError, KvspillError, MemoryError, SystemError):
        # Without descriptors, threads or memory to spare it is done here; nobody waits for the loop now.
        # A lack of memory may also end in an error of the interpreter itself.
        backend.close_now()


def _say(warnings: Iterable[Caution], progress: Progress) -> None:
    for warning in warnings:
        progress.insist(f"warning: {warning.message} {warning.remedy}")


def close_all_now(backends: Iterable[Backend]) -> None:
    """Close without a loop what is not closed yet."""
    for backend in backends:
        backend.close_now()
