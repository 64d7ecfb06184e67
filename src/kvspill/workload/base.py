"""What a workload is: users, each with a session of requests in the order of their intended times."""

import heapq
from collections.abc import Iterator
from typing import Protocol

from kvspill.records import Request


class Workload(Protocol):
    """WHO asks WHAT and WHEN. Sessions are lazy: only each user's next request exists."""

    users: int

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """The requests of one user from start_ns on."""
        ...


def merged(workload: Workload) -> Iterator[Request]:
    """All users' requests in the order of their intended times (L1: then user, then turn)."""
    sessions = [workload.session(user) for user in range(workload.users)]
    return heapq.merge(
        *sessions, key=lambda request: (request.intended_ns, request.user, request.conversation, request.turn)
    )
