"""Who is there and whose request comes next: users start and leave while the load goes on."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from kvspill.records import Request
from kvspill.workload.base import Workload

_Next = tuple[int, int, int, int, Request, Iterator[Request]]


class OpenArrivals:
    """The next request of every user, in the order of intended times, then user, then turn (L1)."""

    def __init__(self, workload: Workload):
        self._workload = workload
        self._heap: list[_Next] = []

    def start(self, user: int, start_ns: int) -> None:
        """A user joins; its first request comes after start_ns."""
        self._push(self._workload.session(user, start_ns))

    def retire(self, user: int) -> None:
        """A user asks nothing more."""
        self._heap = [entry for entry in self._heap if entry[1] != user]
        heapify(self._heap)

    def peek(self) -> Request | None:
        """The next request of all; it stays."""
        return self._heap[0][4] if self._heap else None

    def pop(self) -> Request:
        """Take the next request; its user's following one takes its place."""
        *_rank, request, session = heappop(self._heap)
        self._push(session)
        return request

    def _push(self, session: Iterator[Request]) -> None:
        request = next(session, None)
        if request is not None:
            rank = (request.intended_ns, request.user, request.conversation, request.turn)
            heappush(self._heap, (*rank, request, session))
