"""The queue: requests by service class, then intended time; a turn waits for the turn before it (L1)."""

import asyncio
from collections import deque

from kvspill.records import Request

_Eligible = tuple[int, int, int, int, int, Request, int]
"""Class, intended time, user, turn and number, the order of service (L1); the request; how long the turn
before it was generating while it waited (S11)."""
_Turn = tuple[int, int, Request]
"""A turn that waits for the one before it: class, intended time, the request."""


class RequestQueue:
    """Holds what has arrived and is not yet served. `max_queue` bounds it; more is shed (L3)."""

    def __init__(self, max_queue: int):
        self._max_queue = max_queue
        self._eligible: asyncio.PriorityQueue[_Eligible] = asyncio.PriorityQueue()
        self._chains: dict[tuple[int, int], deque[_Turn] | None] = {}
        """Conversations with a turn in the queue or in service, and the turns that wait for it, if any do."""
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
            self._push(request, intended_ns)
            return True
        waiting = self._chains[conversation]
        if waiting is None:
            waiting = self._chains[conversation] = deque()
        waiting.append((request.qos, intended_ns, request))
        self._waiting += 1
        return True

    async def take(self) -> tuple[Request, int, int]:
        """The next request to serve, its intended time, and how long the turn before it was generating
        while it waited (S11)."""
        if self._eligible.empty():
            self._idle_servers += 1
            self._idle.set()
            try:
                first = await self._eligible.get()
            finally:
                self._idle_servers -= 1
                if self._idle_servers == 0:
                    self._idle.clear()
        else:
            first = self._eligible.get_nowait()
        _qos, intended_ns, _user, _turn, _number, request, waited_generation_ns = first
        return request, intended_ns, waited_generation_ns

    async def someone_idle(self) -> None:
        """Wait until a server has nothing to do."""
        await self._idle.wait()

    def done(self, request: Request, generated_ns: tuple[int, int] = (0, 0)) -> None:
        """A request left service, after generating from when to when: the turn after it may be served."""
        conversation = (request.user, request.conversation)
        waiting = self._chains[conversation]
        if waiting:
            self._waiting -= 1
            _qos, intended_ns, following = waiting.popleft()
            from_ns, to_ns = generated_ns
            self._push(following, intended_ns, max(0, to_ns - max(from_ns, intended_ns)))
        else:
            del self._chains[conversation]

    def waits(self) -> tuple[list[int], list[int]]:
        """Class and intended time of all that is still here, without a look at the requests themselves:
        a million of them lie all over the memory."""
        # The priority queue has no public view of its content.
        eligible: list[_Eligible] = self._eligible._queue  # type: ignore[attr-defined]
        behind = [turn for waiting in self._chains.values() if waiting for turn in waiting]
        return (
            [item[0] for item in eligible] + [turn[0] for turn in behind],
            [item[1] for item in eligible] + [turn[1] for turn in behind],
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

    def _push(self, request: Request, intended_ns: int, waited_generation_ns: int = 0) -> None:
        self._sequence += 1
        rank = (request.qos, intended_ns, request.user, request.turn, self._sequence)
        self._eligible.put_nowait((*rank, request, waited_generation_ns))
