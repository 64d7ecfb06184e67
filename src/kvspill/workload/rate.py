"""A fixed rate of requests: any workload's requests in their order, at new times."""

import math
from collections.abc import Iterator, Mapping
from heapq import merge
from typing import Any

from kvspill.config import Config
from kvspill.records import NS_PER_SEC, Request
from kvspill.workload.base import Altered, Workload
from kvspill.world import World


class RatedWorkload(Altered):
    """The inner workload's requests by their intended times, at so many per second in place of those times.

    All users share the one stream: a request keeps its own user.
    """

    def __init__(self, config: Config, world: World, inner: Workload):
        super().__init__(inner)
        assert config.request_rate is not None
        self._rate = config.request_rate
        self._poisson = config.rate_process == "poisson"
        self._world = world
        self.elastic = False
        self._shared = self._requests()

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """The requests that are left; all users share them."""
        del user, start_ns
        return self._shared

    def facts(self) -> Mapping[str, Any]:
        process = "poisson" if self._poisson else "constant"
        return {**self._inner.facts(), "request_rate": self._rate, "rate_process": process}

    def _requests(self) -> Iterator[Request]:
        for at_ns, request in zip(self._times_ns(), in_arrival_order(self._inner), strict=False):
            yield request._replace(intended_ns=at_ns)

    def _times_ns(self) -> Iterator[int]:
        """Intended times without end, the first one at 0."""
        chance = self._world.rng("rate").random
        seconds = 0.0
        count = 0
        while True:
            yield round(seconds * NS_PER_SEC)
            count += 1
            # A constant rate is not summed up, so that no rounding grows over a long run.
            seconds = seconds - math.log(1 - chance()) / self._rate if self._poisson else count / self._rate


def in_arrival_order(workload: Workload) -> Iterator[Request]:
    """The requests of all users as open arrivals would bring them (L1)."""
    sessions = [workload.session(user) for user in range(workload.users)]
    return merge(
        *sessions,
        key=lambda request: (request.intended_ns, request.user, request.conversation, request.turn),
    )
