"""Closes the backends of a run, all of them whatever happens, and says what could not be removed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from kvspill.errors import KvspillError
from kvspill.result.cautions import noted
from kvspill.result.schema import Caution
from kvspill.run.progress import Progress
from kvspill.storage.base import LEFT_BEHIND, Backend


async def close_within(
    seconds: float | None, backends: list[Backend], directories: Iterable[Path], progress: Progress
) -> list[Caution]:
    """Close every backend, but let no user wait long for the removal of much data.

    Where it takes longer than that, another process goes on with it once this one has ended.
    """
    closing = asyncio.ensure_future(close_all(backends, progress))
    try:
        return await asyncio.wait_for(asyncio.shield(closing), seconds)
    except TimeoutError:
        backends.clear()
        for directory in directories:
            clean = ["-m", "kvspill.cli.main", "clean", "--after", str(os.getpid()), str(directory)]
            subprocess.Popen(
                [sys.executable, *clean],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        progress.say("The removal of the run's files goes on in the background.")
        return []


async def close_all(backends: Iterable[Backend], progress: Progress) -> list[Caution]:
    """Close every backend; returns a warning where something stays behind. A failure costs no result."""
    left: list[Caution] = []
    for backend in backends:
        try:
            await backend.close()
        except (OSError, KvspillError, MemoryError):
            # Without descriptors, threads or memory to spare it is done here; nobody waits for the loop now.
            close_all_now([backend])
        left += [noted(*note) for note in backend.notes() if note.code == LEFT_BEHIND]
    for warning in left:
        progress.say(f"warning: {warning.message} {warning.remedy}")
    return left


def close_all_now(backends: Iterable[Backend]) -> None:
    """Close without a loop what is not closed yet."""
    for backend in backends:
        backend.close_now()
