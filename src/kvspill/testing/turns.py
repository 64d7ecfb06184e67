"""Whether the event loop goes on turning while a backend moves bytes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

TURN_MAX_S = 0.05
"""What one turn of the loop may take while bytes move."""
TRIES = 5
"""A busy machine holds the loop up too, but not each time."""


async def check_turns(verb: str, start: Callable[[], Awaitable[object]]) -> None:
    """Fail where nothing else can run until the answer comes."""
    held_s: list[float] = []
    while not held_s or (held_s[-1] >= TURN_MAX_S and len(held_s) < TRIES):
        held_s.append(await _longest_turn_s(start()))
    shortest_s = min(held_s)
    assert shortest_s < TURN_MAX_S, (
        f"each {verb} held the event loop for {shortest_s:.2f} s or more: do the work on threads"
    )


async def _longest_turn_s(answer: Awaitable[object]) -> float:
    under_way = asyncio.ensure_future(answer)
    longest_s, turned_s = 0.0, time.monotonic()
    while not under_way.done():
        await asyncio.sleep(0)
        now_s = time.monotonic()
        longest_s, turned_s = max(longest_s, now_s - turned_s), now_s
    return longest_s
