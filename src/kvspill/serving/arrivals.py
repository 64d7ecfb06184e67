"""Who is there and whose request comes next: users start and leave while the load goes on."""

import gc
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, dropwhile

from kvspill.records import Request
from kvspill.workload.base import Workload

_USERS_AT_ONCE = 10_000

_Next = tuple[int, int, int, int, Request, Iterator[Request]]


def new_conversations(session: Iterator[Request]) -> Iterator[Request]:
    """A session from its next conversation on: a user that returns does not resume the last one."""
    return dropwhile(lambda request: request.turn > 0, session)


Said = Callable[[int, int], None]
"""Hears how many users of how many have joined."""


def _joining(users: int, said: Said) -> Iterator[int]:
    for user in range(users):
        if user % _USERS_AT_ONCE == 0:
            said(user, users)
            if user:
                # Looking through them for cycles again and again would take longer than their start.
                gc.freeze()
        yield user
    said(users, users)


class ClosedArrivals:
    """The first request of every user that waits for answers, drawn before the load begins."""

    def __init__(self, workload: Workload, max_requests: int | None = None):
        self._workload = workload
        self._asking = workload.users if max_requests is None else min(workload.users, max_requests)
        """So many users have anything to ask."""
        self._first: dict[int, tuple[Request | None, Iterator[Request]]] = {}

    def start_all(self, said: Said) -> None:
        """The workload's own users join, before the load begins."""
        for user in _joining(self._asking, said):
            self._first[user] = self._draw(user)

    def take(self, user: int) -> tuple[Request | None, Iterator[Request]]:
        """A user's first request and those that follow."""
        return self._first.pop(user, None) or self._draw(user)

    def _draw(self, user: int) -> tuple[Request | None, Iterator[Request]]:
        session = self._workload.session(user)
        return next(session, None), session


class OpenArrivals:
    """The next request of every user, in the order of intended times, then user, then turn (L1)."""

    def __init__(self, workload: Workload):
        self._workload = workload
        self._heap: list[_Next] = []
        self._away: dict[int, Iterator[Request]] = {}
        """What those who left would have asked."""

    def start_all(self, said: Said) -> None:
        """The workload's own users join, before the load begins."""
        for user in _joining(self._workload.users, said):
            self.start(user, 0)

    def start(self, user: int, start_ns: int) -> None:
        """A user joins, or comes back with new conversations; its first request comes after start_ns."""
        session = self._away.pop(user, None)
        if session is None:
            self._push(self._workload.session(user, start_ns))
        else:
            self._push(_from(start_ns, new_conversations(session)))

    def retire(self, user: int) -> None:
        """A user asks nothing more."""
        for *_rank, request, session in (entry for entry in self._heap if entry[1] == user):
            self._away[user] = chain((request,), session)
        self._heap = [entry for entry in self._heap if entry[1] != user]
        heapify(self._heap)

    def next_ns(self) -> int | None:
        """When the next request of all is meant to come."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Request:
        """Take the next request; its user's following one takes its place."""
        *_rank, request, session = self._heap[0]
        following = _next(session)
        if following is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, following)
        return request

    def _push(self, session: Iterator[Request]) -> None:
        following = _next(session)
        if following is not None:
            heappush(self._heap, following)


def _next(session: Iterator[Request]) -> _Next | None:
    request = next(session, None)
    if request is None:
        return None
    return request.intended_ns, request.user, request.conversation, request.turn, request, session


def _from(start_ns: int, session: Iterator[Request]) -> Iterator[Request]:
    """A session whose first request comes a pause after start_ns, the others as long after it as before."""
    shift_ns: int | None = None
    for request in session:
        if shift_ns is None:
            shift_ns = start_ns + request.think_ns - request.intended_ns
        yield request._replace(intended_ns=request.intended_ns + shift_ns)
