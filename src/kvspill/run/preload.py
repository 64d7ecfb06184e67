"""Stores what must be there before a load begins, several entries at a time."""

import asyncio

from kvspill.cache.cache import Cache
from kvspill.errors import KvspillError
from kvspill.models.groups import KvSize
from kvspill.records import Purpose
from kvspill.run.progress import Progress
from kvspill.workload.base import Workload

_AT_ONCE = 16


async def preload(
    workload: Workload, cache: Cache, kv: KvSize, progress: Progress, in_order: bool = False
) -> None:
    """Store the workload's entries to be found, in their order where that counts; one that can't be stored
    ends the run."""
    entries, at_once = list(workload.preload()), 1 if in_order else _AT_ONCE
    for first in range(0, len(entries), at_once):
        progress.preparing("entries to be found", first, len(entries))
        some = entries[first : first + at_once]
        puts = await asyncio.gather(
            *(
                cache.put([entry.key], kv.of(entry.tokens), Purpose.INGEST, tokens=entry.tokens)
                for entry in some
            )
        )
        for entry, put in zip(some, puts, strict=True):
            if put.failure is not None:
                raise KvspillError(
                    f"storing {entry.key} before the load failed: {put.failure}; "
                    "check the cache directory and --storage-capacity-gb"
                )
    progress.preparing("entries to be found", len(entries), len(entries))
