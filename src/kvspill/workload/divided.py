"""The part of a workload that one of several ranks serves: the same users whatever the number of ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from kvspill.config import Config
from kvspill.records import Request
from kvspill.workload.base import Altered, Workload
from kvspill.workload.rate import in_arrival_order


@dataclass(frozen=True, slots=True)
class Share:
    """Which users a rank serves: user u belongs to rank u mod size (R1)."""

    index: int = 0
    size: int = 1

    def owns(self, user: int) -> bool:
        return user % self.size == self.index

    def of(self, users: int) -> int:
        """How many of the first so many users are its own."""
        return (users - self.index + self.size - 1) // self.size


ALL_USERS = Share()


class DividedWorkload(Altered):
    """The requests of a rank's own users, out of a workload that is planned whole.

    Where the first N requests of all users are asked for, a rank looks at those and serves its own. What is
    stored before the load is all of it: any user may read any of these entries, and each rank has a cache.
    """

    def __init__(self, config: Config, inner: Workload, share: Share):
        super().__init__(inner)
        self._share = share
        self._closed = config.arrival == "closed"
        self._shared = not inner.elastic
        """All users take their requests from one stream."""
        self._asked = 0
        self._max_requests = config.max_requests
        self._first: Iterator[Request] | None = None
        if config.max_requests is not None and not self._closed:
            first = islice(in_arrival_order(inner), config.max_requests)
            self._first = (request for request in first if share.owns(request.user))
            self.elastic = False

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        if self._first is not None:
            return self._first
        if self._shared:
            # Of closed users, too, each rank has its own.
            mine = not self._closed or self._share.owns(user)
            return self._own(self._inner.session(user, start_ns)) if mine else iter(())
        return self._inner.session(user, start_ns) if self._share.owns(user) else iter(())

    def _own(self, requests: Iterator[Request]) -> Iterator[Request]:
        while self._asked != self._max_requests and (request := next(requests, None)) is not None:
            self._asked += 1
            if self._share.owns(request.user):
                yield request
