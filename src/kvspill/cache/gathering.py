"""Several things at once, or one after the other."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def gather(calls: list[Coroutine[Any, Any, T]]) -> list[T]:
    """Run several at once; a single one needs no task."""
    if len(calls) == 1:
        return [await calls[0]]
    return list(await asyncio.gather(*calls))


async def in_turn(calls: list[Coroutine[Any, Any, T]]) -> list[T]:
    """Run several in their order, each once the one before has ended."""
    return [await call for call in calls]
