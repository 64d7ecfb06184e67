"""The order of one server with fixed work: as on storage that takes no time, whatever the real one takes."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from kvspill.records import Request
from kvspill.serving.queue import Eligible, RequestQueue, Waits


class PlannedQueue(RequestQueue):
    """Gives requests to one server in an order that the workload alone decides.

    Its clock shows what time it would be if all that is stored and read took no time: only generation and
    waiting for users pass. Requests are taken by the rules of the queue (L1) among those that had come by
    then. One that had come by that clock and is still to come in truth is waited for.
    """

    def __init__(self, max_queue: int, start_ns: int):
        super().__init__(max_queue)
        self.now_ns = start_ns
        self.upcoming_ns: Callable[[], int | None] = self._expected_ns
        """When, by this clock, the first of those comes who have not come yet."""
        self._expected: list[tuple[int, int, Request]] = []
        self._planned_ns: dict[Request, int] = {}
        """When each request that is expected comes by this clock."""
        self._later: list[tuple[int, int, Eligible]] = []
        """Requests that are here and would not be by this clock."""
        self._came = asyncio.Event()

    def __len__(self) -> int:
        return super().__len__() + len(self._later)

    def expect(self, request: Request, at_ns: int) -> None:
        """A user will ask this at that time by this clock."""
        self._planned_ns[request] = at_ns
        self._sequence += 1
        heappush(self._expected, (at_ns, self._sequence, request))

    def submit(self, request: Request, intended_ns: int) -> bool:
        self._came.set()
        taken = super().submit(request, intended_ns)
        if not taken:
            self._planned_ns.pop(request, None)
        return taken

    async def take(self) -> tuple[Request, int, int]:
        while not self._is_next_here():
            self._came.clear()
            with self._idling():
                await self._came.wait()
        return self._taken(self._eligible.get_nowait())

    def generates(self, request: Request, from_ns: int, duration_ns: int) -> None:
        super().generates(request, from_ns, duration_ns)
        # Users without a pause take turns, because each asks again a moment after it was served.
        self.now_ns += max(1, duration_ns)

    def waits(self, at_ns: int) -> Waits:
        classes, intended_ns, generated_ns = super().waits(at_ns)
        later = [item for _planned_ns, _number, item in self._later]
        return (
            classes + [item[0] for item in later],
            intended_ns + [item[6] for item in later],
            generated_ns + [item[7] for item in later],
        )

    def clear(self) -> int:
        while self._later:
            self._eligible.put_nowait(heappop(self._later)[2])
        return super().clear()

    def _place_ns(self, request: Request, intended_ns: int) -> int:
        return self._planned_ns.pop(request, intended_ns)

    def _enter(self, item: Eligible) -> None:
        heappush(self._later, (item[1], item[4], item))

    def _is_next_here(self) -> bool:
        """Whether who is next by this clock has come. Where nobody would have yet, the clock goes on."""
        upcoming_ns = self.upcoming_ns()
        coming_ns = [item[0] for item in self._later[:1]]
        coming_ns += [] if upcoming_ns is None else [upcoming_ns]
        if self._eligible.empty() and coming_ns:
            self.now_ns = max(self.now_ns, min(coming_ns))
        while self._later and self._later[0][0] <= self.now_ns:
            self._eligible.put_nowait(heappop(self._later)[2])
        return not self._eligible.empty() and (upcoming_ns is None or upcoming_ns > self.now_ns)

    def _expected_ns(self) -> int | None:
        while self._expected and self._planned_ns.get(self._expected[0][2]) != self._expected[0][0]:
            heappop(self._expected)
        return self._expected[0][0] if self._expected else None
