"""A modelled device without lanes: whatever is in flight shares its time equally."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from kvspill.records import NS_PER_SEC, Verb
from kvspill.storage.modelled.timer import Timer
from kvspill.storage.modelled.transfers import Transfer


class SharedDevice:
    """Processor sharing in model time: each of the n transfers in service gets 1/n of the device.

    Service is measured by a virtual work clock that advances at 1/n, so that an arrival or a
    completion costs O(log n) (E8). Completions carry the model's own times, however late the
    event loop looks (E6).

    LanedDevice cannot stand in for it: presets and the GPU tier have no threads and pieces to model, and in
    its line an entry waits for those before it where here all in flight end later alike.
    """

    def __init__(self, concurrency: int, clock_ns: Callable[[], int]):
        self._concurrency = concurrency or math.inf
        self._clock_ns = clock_ns
        self._waiting: deque[Transfer] = deque()
        self._starting: set[Transfer] = set()
        self._entering: dict[float, list[Transfer]] = {}
        """Those that wait out their latency, by the time when it is over."""
        self._active: list[tuple[float, int, Transfer]] = []
        self._in_service = 0
        """How many entries share the device."""
        self._in_latency = 0
        self._sequence = 0
        self._work_ns = 0.0
        self._at_ns = 0.0
        self._timer = Timer(clock_ns, self._wake)

    def submit(self, transfer: Transfer, verb: Verb) -> None:  # noqa: ARG002 - one device for both
        """Take a transfer in; its batch is told when it is done."""
        rest = self._admit_some(transfer, self._concurrency, transfer.submitted_ns)
        if rest is not None:
            self._waiting.append(rest)

    def _admit_some(self, transfer: Transfer, most: float, at_ns: float) -> Transfer | None:
        """Let so many of a transfer's entries begin as may; returns those that must wait."""
        free = min(most, self._concurrency - self._in_service - self._in_latency)
        if free <= 0:
            return transfer
        rest = transfer.split(int(free)) if transfer.count > free else None
        self._admit(transfer, at_ns)
        return rest

    def cancel(self) -> None:
        """End everything now; what was served so far is reported as moved."""
        now_ns = self._clock_ns()
        self._advance(now_ns)
        for _tag, _sequence, transfer in self._active:
            left_ns = transfer.tag - self._work_ns
            share = 1.0 - left_ns / transfer.work_ns if transfer.work_ns > 0 else 0.0
            transfer.finish(now_ns, "cancelled", int(transfer.nbytes * min(1.0, max(0.0, share))))
        for transfer in (*self._starting, *self._waiting):
            transfer.finish(now_ns, "cancelled", 0)
        self._active.clear()
        self._starting.clear()
        self._in_service = self._in_latency = 0
        self._waiting.clear()
        self._timer.cancel()

    def _admit(self, transfer: Transfer, at_ns: float) -> None:
        transfer.started_ns = round(at_ns)
        if transfer.latency_ns <= 0:
            self._enter((transfer,), at_ns)
            return
        self._starting.add(transfer)
        self._in_latency += transfer.count
        enter_ns = at_ns + transfer.latency_ns
        together = self._entering.get(enter_ns)
        if together is not None:
            # What begins together enters together: one timer for all of it.
            together.append(transfer)
            return
        self._entering[enter_ns] = [transfer]
        self._timer.loop.call_later(
            max(0.0, enter_ns - self._clock_ns()) / NS_PER_SEC, self._latency_over, enter_ns
        )

    def _latency_over(self, enter_ns: float) -> None:
        transfers = [transfer for transfer in self._entering.pop(enter_ns) if transfer in self._starting]
        self._starting.difference_update(transfers)
        self._in_latency -= sum(transfer.count for transfer in transfers)
        self._enter(transfers, enter_ns)

    def _enter(self, transfers: Sequence[Transfer], at_ns: float) -> None:
        self._advance(at_ns)
        for transfer in transfers:
            self._sequence += 1
            transfer.tag = self._work_ns + transfer.work_ns
            heappush(self._active, (transfer.tag, self._sequence, transfer))
            self._in_service += transfer.count
        self._advance(self._at_ns)
        self._arm()

    def _advance(self, to_ns: float) -> None:
        """Bring the model to to_ns, completing on the way what gets done by then."""
        freed: list[tuple[float, int]] = []
        while self._active:
            tag, _sequence, transfer = self._active[0]
            done_ns = self._at_ns + (tag - self._work_ns) * self._in_service
            if done_ns > max(to_ns, self._at_ns):
                break
            heappop(self._active)
            self._in_service -= transfer.count
            self._work_ns, self._at_ns = tag, done_ns
            transfer.finish(done_ns)
            if self._waiting:
                freed.append((done_ns, transfer.count))
        if to_ns > self._at_ns:
            if self._active:
                self._work_ns += (to_ns - self._at_ns) / self._in_service
            else:
                self._work_ns = 0.0
            self._at_ns = to_ns
        for at_ns, places in freed:
            while places > 0 and self._waiting:
                transfer = self._waiting.popleft()
                rest = self._admit_some(transfer, places, at_ns)
                if rest is not None:
                    self._waiting.appendleft(rest)
                if rest is transfer:
                    break
                places -= transfer.count

    def _arm(self) -> None:
        """Wake when the next transfer is due."""
        if self._active:
            self._timer.set(self._at_ns + (self._active[0][0] - self._work_ns) * self._in_service)

    def _wake(self) -> None:
        self._advance(self._clock_ns())
        self._arm()
