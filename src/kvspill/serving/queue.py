"""The queue: requests by service class, then intended time; a turn waits for the turn before it (L1)."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from kvspill.records import Request

Waits = tuple[list[int], list[int], list[int]]
"""Of those that wait: class, intended time, and how long the turn before was generating meanwhile (S11)."""
Eligible = tuple[int, int, int, int, int, Request, int, int]
"""Class, place in time, user, turn and number, the order of service (L1); the request; its intended time; how
long the turn before it was generating while it waited (S11)."""
_Turn = tuple[int, int, int, Request]
"""A turn that waits for the one before it: class, place in time, intended time, the request."""


class RequestQueue:
    """Holds what has arrived and is not yet served. `max_queue` bounds it; more is shed (L3)."""

    def __init__(self, max_queue: int):
        self._max_queue = max_queue
        self._eligible: asyncio.PriorityQueue[Eligible] = asyncio.PriorityQueue()
        self._chains: dict[tuple[int, int], deque[_Turn] | None] = {}
        """Conversations with a turn in the queue or in service, and the turns that wait for it, if any do."""
        self._generating: dict[tuple[int, int], int] = {}
        """Since when the turn in service of a conversation has been generating its answer."""
        self._waiting = 0
        self._sequence = 0
        self._idle_servers = 0
        self._idle = asyncio.Event()
        self.shed = 0

    def __len__(self) -> int:
        return self._eligible.qsize() + self._waiting

    def submit(self, request: Request, intended_ns: int) -> bool:
        """Take a request in; False where the backlog is full and the request is shed."""
        if len(self) >= self._max_queue:
            self.shed += 1
            return False
        conversation = (request.user, request.conversation)
        if conversation not in self._chains:
            self._chains[conversation] = None
            self._push(self._place_ns(request, intended_ns), intended_ns, request)
            return True
        waiting = self._chains[conversation]
        if waiting is None:
            waiting = self._chains[conversation] = deque()
        waiting.append((request.qos, self._place_ns(request, intended_ns), intended_ns, request))
        self._waiting += 1
        return True

    async def take(self) -> tuple[Request, int, int]:
        """The next request to serve, its intended time, and how long the turn before it was generating
        while it waited (S11)."""
        if not self._eligible.empty():
            return self._taken(self._eligible.get_nowait())
        with self._idling():
            return self._taken(await self._eligible.get())

    def _taken(self, first: Eligible) -> tuple[Request, int, int]:
        *_rank, request, intended_ns, waited_generation_ns = first
        return request, intended_ns, waited_generation_ns

    @contextmanager
    def _idling(self) -> Iterator[None]:
        """A server has nothing to do."""
        self._idle_servers += 1
        self._idle.set()
        try:
            yield
        finally:
            self._idle_servers -= 1
            if self._idle_servers == 0:
                self._idle.clear()

    async def someone_idle(self) -> None:
        """Wait until a server has nothing to do."""
        await self._idle.wait()

    def generates(self, request: Request, from_ns: int, duration_ns: int) -> None:  # noqa: ARG002
        """The answer of a request in service begins and takes so long by itself."""
        self._generating[request.user, request.conversation] = from_ns

    def done(self, request: Request, generated_ns: tuple[int, int] = (0, 0)) -> None:
        """A request left service, after generating from when to when: the turn after it may be served."""
        conversation = (request.user, request.conversation)
        self._generating.pop(conversation, None)
        waiting = self._chains[conversation]
        if waiting:
            self._waiting -= 1
            _qos, place_ns, intended_ns, following = waiting.popleft()
            from_ns, to_ns = generated_ns
            self._push(place_ns, intended_ns, following, max(0, to_ns - max(from_ns, intended_ns)))
        else:
            del self._chains[conversation]

    def waits(self, at_ns: int) -> Waits:
        """All that is still here at that time, without a look at the requests themselves: a million of them
        lie all over the memory."""
        # The priority queue has no public view of its content.
        eligible: list[Eligible] = self._eligible._queue  # type: ignore[attr-defined]
        generating = self._generating
        # Of a conversation's turns only the next one waits for the answer that is being generated (S11).
        next_up = [
            (turns[0], from_ns) for chain, from_ns in generating.items() if (turns := self._chains[chain])
        ]
        behind = [turn for turn, _from_ns in next_up]
        behind += [
            turn
            for chain, turns in self._chains.items()
            if turns
            for turn in (islice(turns, 1, None) if chain in generating else turns)
        ]
        generated_ns = [item[7] for item in eligible]
        generated_ns += [max(0, at_ns - max(from_ns, turn[2])) for turn, from_ns in next_up]
        return (
            [item[0] for item in eligible] + [turn[0] for turn in behind],
            [item[6] for item in eligible] + [turn[2] for turn in behind],
            generated_ns + [0] * (len(behind) - len(next_up)),
        )

    def clear(self) -> int:
        """Dismiss waiting requests; those in service continue. Returns how many were dismissed."""
        sent_away = len(self)
        while not self._eligible.empty():
            request = self._eligible.get_nowait()[5]
            del self._chains[request.user, request.conversation]
        self._chains = dict.fromkeys(self._chains)
        self._waiting = 0
        return sent_away

    def _push(self, place_ns: int, intended_ns: int, request: Request, waited_generation_ns: int = 0) -> None:
        self._sequence += 1
        rank = (request.qos, place_ns, request.user, request.turn, self._sequence)
        self._enter((*rank, request, intended_ns, waited_generation_ns))

    def _place_ns(self, _request: Request, intended_ns: int) -> int:
        """The time by which a request has its place in its class."""
        return intended_ns

    def _enter(self, item: Eligible) -> None:
        """A request may be served from now on."""
        self._eligible.put_nowait(item)
