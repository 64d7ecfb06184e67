"""A modelled device behind lanes: entries in order of arrival, each moved in pieces by a few threads."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from kvspill.records import MIB, NS_PER_SEC, Verb
from kvspill.storage.profiles import DeviceModel, Direction
from kvspill.storage.ring import Place, Ring
from kvspill.storage.transfers import Transfer
from kvspill.world import VirtualLoop

_BYTES_ROUNDING = 1.0
_NS_ROUNDING = 1e-2
"""Less than that is no time and no work: a moment too short for the clock must not be waited for."""
_RESUME_SHARE = 0.05
"""A burst begins again once so much of the allowance is back: it must not be taken in crumbs."""


class _Ride:
    """Equal entries whose lanes move in step."""

    __slots__ = ("flow", "left", "piece_bytes", "places", "transfer", "wanted")

    def __init__(self, transfer: Transfer, flow: "_Flow", pieces: int):
        self.transfer = transfer
        self.flow = flow
        self.left = pieces
        """Pieces of each entry that no lane has taken up yet."""
        self.piece_bytes = max(1.0, transfer.nbytes / pieces)
        self.wanted = 0
        """Lanes of each entry that may still join."""
        self.places: list[Place[_Ride]] = []

    def settle(self) -> None:
        """Count the pieces that lanes have taken up by now: none has left, so each found one every turn."""
        for place in self.places:
            self.left -= place.lanes * self.flow.ring.taken(place)

    def plan(self) -> None:
        """When lanes will leave: those that are served first take the pieces that are left, in turn."""
        ring, places = self.flow.ring, self.places
        if len(places) > 1:
            places = sorted(places, key=ring.order)
        turns, more = divmod(self.left, sum([place.lanes for place in places]))
        for place in places:
            last = ring.order(place)[0] + turns
            longer = min(more, place.lanes)
            more -= longer
            if not longer:
                place.plan([(last, place.lanes)])
            elif longer == place.lanes:
                place.plan([(last + 1, longer)])
            else:
                place.plan([(last, place.lanes - longer), (last + 1, longer)])
        ring.planned()

    def split(self, count: int) -> "_Ride":
        """Keep the first `count` entries; the others wait on, as another ride."""
        return _Ride(self.transfer.split(count), self.flow, self.left)

    def moved_bytes(self) -> int:
        """What one of the entries has moved by now."""
        pieces_left = sum(self.flow.ring.turns_left(place) for place in self.places)
        nbytes = self.transfer.nbytes
        return min(nbytes, max(0, nbytes - round(pieces_left * self.piece_bytes)))


class _Flow:
    """Reads or writes in flight. In one turn the device moves every piece in flight once."""

    __slots__ = (
        *("bursting", "busy_ns", "changed", "credit_bytes", "due_ns", "lanes", "leave_ns", "passed_bytes"),
        *("pool", "ring", "row_ns", "slice_end_ns", "speed", "turn_ns"),
    )

    def __init__(self, speed: Direction, pool: "_Pool"):
        self.speed = speed
        self.pool = pool
        self.ring: Ring[_Ride] = Ring()
        self.turn_ns = math.inf
        self.lanes = 0
        self.credit_bytes = speed.burst_bytes
        self.bursting = speed.burst_bytes > 0
        self.slice_end_ns = 0.0
        self.row_ns = 0.0
        """When the first of the slices began that follow each other."""
        self.passed_bytes = 0.0
        """What has passed since."""
        self.busy_ns = -1e18
        """When there was last something to do."""
        self.changed = False
        """Whether anything is otherwise than when the times below were found."""
        self.leave_ns = self.due_ns = math.inf
        """When the next lanes leave, and when anything of this flow happens."""

    def riders(self) -> list[_Ride]:
        """Those who have lanes."""
        return list(dict.fromkeys(place.rider for place in self.ring.places))

    def move(self, to_ns: float, elapsed_ns: float) -> None:
        speed = self.speed
        if speed.slice_ns:
            moved_bytes = elapsed_ns * self.bytes_per_ns()
            self.passed_bytes += moved_bytes
            self.credit_bytes = max(0.0, self.credit_bytes - moved_bytes)
        elif speed.burst_bytes:
            gained_bytes = elapsed_ns * (1 / speed.ns_per_byte - self.bytes_per_ns())
            self.credit_bytes = min(speed.burst_bytes, max(0.0, self.credit_bytes + gained_bytes))
        if self.stalled:
            self.ring.wait(to_ns)
        else:
            self.ring.serve(to_ns)

    def bytes_per_ns(self) -> float:
        return self.ring.nbytes / self.turn_ns if self.lanes else 0.0

    def _spent_in_ns(self, bytes_per_ns: float) -> float:
        """How long the burst allowance will last."""
        if not self.bursting:
            return math.inf
        excess = bytes_per_ns - (0.0 if self.speed.slice_ns else 1 / self.speed.ns_per_byte)
        return self.credit_bytes / excess if excess > 0 else math.inf

    def renew(self, at_ns: float) -> None:
        """Earn the right to a burst: with a new slice, or little by little."""
        speed = self.speed
        if speed.slice_ns:
            if at_ns >= self.slice_end_ns - _NS_ROUNDING:
                self._next_slice(at_ns)
                self.bursting = self.changed = True
        elif not self.bursting and self.credit_bytes >= _RESUME_SHARE * speed.burst_bytes > 0:
            self.bursting = self.changed = True

    def _next_slice(self, at_ns: float) -> None:
        """Slices follow each other, and what one leaves over goes with the next; a pause ends their row.

        So does the throttle of the kernel, whose clock ends a row at a whole number of slices.
        """
        slice_ns, whole_bytes = self.speed.slice_ns, self.speed.burst_bytes
        if at_ns > (self.busy_ns // slice_ns + 2) * slice_ns:
            self.row_ns, self.passed_bytes = at_ns, 0.0
        slices = int((at_ns - self.row_ns + _NS_ROUNDING) / slice_ns)
        if slices > 1:
            # The slice before this one is kept.
            self.row_ns += (slices - 1) * slice_ns
            self.passed_bytes = max(0.0, self.passed_bytes - (slices - 1) * whole_bytes)
            slices = 1
        self.slice_end_ns = self.row_ns + (slices + 1) * slice_ns
        self.credit_bytes = max(0.0, (slices + 1) * whole_bytes - self.passed_bytes)
        self.busy_ns = at_ns

    @property
    def stalled(self) -> bool:
        """Whether what the slice allows has been used up."""
        return not self.bursting and self.speed.slice_ns > 0

    def drain_ns(self) -> float:
        """How long the device would take for the bytes in flight, had it nothing else to do."""
        if self.stalled:
            return 0.0
        return self.ring.nbytes * (self.speed.burst_ns_per_byte if self.bursting else self.speed.ns_per_byte)

    def retime(self, at_ns: float, others_ns: float) -> None:
        """When what happens, where the bytes in flight the other way would take so long."""
        speed, self.changed = self.speed, False
        slice_end_ns = self.slice_end_ns if speed.slice_ns else math.inf
        if self.stalled:
            self.turn_ns = self.leave_ns = math.inf
            self.due_ns = slice_end_ns
            return
        shared_ns = self.drain_ns() + (1 - speed.duplex) * others_ns
        alone_ns = speed.piece_ns + speed.alone_ns_per_byte * self.ring.nbytes / self.lanes
        self.ring.pace(max(shared_ns, 1e-3) / self.ring.nbytes, alone_ns)
        self.turn_ns = self.ring.turn_ns()
        self.leave_ns = at_ns + self.ring.ns_until_leave()
        spent_ns = at_ns + self._spent_in_ns(self.bytes_per_ns())
        self.due_ns = min(self.leave_ns, spent_ns, slice_end_ns)


class _Pool:
    """Lanes, those who wait for one, and those who could do with more."""

    __slots__ = ("free", "waiting", "wanting")

    def __init__(self, lanes: int):
        self.free = lanes
        self.waiting: deque[_Ride] = deque()
        self.wanting: list[_Ride] = []


class LanedDevice:
    """Lanes in front of a device, in model time.

    An entry is taken up by one lane in order of arrival; once it is open, as many lanes join it as may and
    as are free. Each lane moves one piece after the other. The device serves pieces in order; a turn, in
    which it serves every lane once, takes as long as the bytes in flight. What becomes of an entry follows
    from when its lanes joined the line: events are per entry, not per piece (E8).
    """

    def __init__(self, model: DeviceModel, clock_ns: Callable[[], int]):
        self._model = model
        self._clock_ns = clock_ns
        self._piece_bytes = round(model.piece_mib * MIB)
        loads = _Pool(model.lanes)
        stores = _Pool(model.write_lanes) if model.write_lanes else loads
        self._pools = (loads,) if stores is loads else (loads, stores)
        self._reads = _Flow(model.direction(Verb.READ), loads)
        self._writes = _Flow(model.direction(Verb.WRITE), stores)
        self._flows = (self._reads, self._writes)
        self._opening: list[tuple[float, int, _Ride]] = []
        self._sequence = 0
        self._at_ns = 0.0
        self._due_ns = math.inf
        """When the next thing happens."""
        self._request_ns = 0.0
        """When the next request may be made, where their rate is limited."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, transfer: Transfer, verb: Verb) -> None:
        """Take a transfer in; its batch is told when it is done."""
        self._advance(transfer.submitted_ns)
        flow = self._reads if verb is Verb.READ else self._writes
        flow.pool.waiting.append(_Ride(transfer, flow, max(1, -(-transfer.nbytes // self._piece_bytes))))
        if flow.pool.free:
            self._grant(flow.pool)
            self._retime()
            self._arm()

    def cancel(self) -> None:
        """End everything now; what was served so far is reported as moved."""
        now_ns = self._clock_ns()
        self._advance(now_ns)
        for flow in self._flows:
            for ride in flow.riders():
                ride.transfer.finish(now_ns, "cancelled", ride.moved_bytes())
            flow.lanes, flow.ring = 0, Ring()
            flow.leave_ns = flow.due_ns = math.inf
        self._due_ns = math.inf
        not_begun = [ride for _ns, _number, ride in self._opening]
        self._opening.clear()
        for pool in self._pools:
            not_begun += pool.waiting
            pool.waiting.clear()
            pool.wanting.clear()
        for ride in not_begun:
            ride.transfer.finish(now_ns, "cancelled", 0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _grant(self, pool: _Pool) -> None:
        """Free lanes go to entries under way first, the last one begun before the others, as threads do."""
        while pool.free:
            if pool.wanting:
                self._join(pool.wanting.pop())
            elif pool.waiting:
                self._take_up(pool.waiting.popleft())
            else:
                return

    def _take_up(self, ride: _Ride) -> None:
        """One lane for each entry; the others wait on."""
        transfer, pool, speed = ride.transfer, ride.flow.pool, ride.flow.speed
        # Entries of one piece go in step; larger ones may get different numbers of lanes.
        together = pool.free if ride.left == 1 else 1
        if transfer.count > together:
            pool.waiting.appendleft(ride.split(together))
        pool.free -= transfer.count
        open_ns = speed.open_ns * transfer.chained
        transfer.started_ns, transfer.host_ns = round(self._at_ns), round(open_ns)
        opened_ns = self._at_ns + open_ns + transfer.latency_ns
        if self._model.requests_per_sec:
            begin_ns = max(self._at_ns, self._request_ns)
            opened_ns += begin_ns - self._at_ns
            requests = transfer.count * ride.left
            self._request_ns = begin_ns + requests * NS_PER_SEC / self._model.requests_per_sec
        if opened_ns > self._at_ns:
            self._sequence += 1
            heappush(self._opening, (opened_ns, self._sequence, ride))
        else:
            self._enter(ride)

    def _enter(self, ride: _Ride) -> None:
        """The entry is open: its first lane begins, others may join."""
        model, pool = self._model, ride.flow.pool
        lanes_max = 1 if ride.transfer.alone else model.lanes_per_entry
        ride.wanted = max(0, min(lanes_max, ride.left // model.pieces_per_lane) - 1)
        joining = min(ride.wanted, pool.free)
        ride.wanted -= joining
        pool.free -= joining
        self._add_lanes(ride, 1 + joining)
        ride.plan()
        if ride.wanted:
            pool.wanting.append(ride)

    def _join(self, ride: _Ride) -> None:
        """Give free lanes to an entry that could do with more."""
        pool = ride.flow.pool
        if ride.wanted:
            ride.settle()
        wanted = min(ride.wanted, ride.left)
        if not wanted:
            return
        joining = min(wanted, pool.free)
        ride.wanted -= joining
        pool.free -= joining
        self._add_lanes(ride, joining)
        ride.plan()
        if ride.wanted and ride.left:
            pool.wanting.append(ride)

    def _add_lanes(self, ride: _Ride, lanes: int) -> None:
        flow, count = ride.flow, lanes * ride.transfer.count
        ride.left -= lanes
        ride.places.append(flow.ring.join(ride, lanes, count * ride.piece_bytes))
        flow.lanes += count
        flow.changed = True

    def _leave(self, place: Place[_Ride]) -> None:
        """Lanes that found no further piece leave; with the last one the entry is done."""
        ride = place.rider
        flow = ride.flow
        lanes = place.left() * ride.transfer.count
        flow.lanes -= lanes
        flow.busy_ns = self._at_ns
        flow.changed = True
        flow.ring.leave(place, lanes * ride.piece_bytes)
        flow.pool.free += lanes
        ride.wanted = 0
        if not place.leaving:
            ride.places.remove(place)
            if not ride.places:
                ride.transfer.finish(self._at_ns)

    def _retime(self) -> None:
        """Find out when the next thing happens."""
        due_ns = self._opening[0][0] if self._opening else math.inf
        for flow in self._flows:
            if flow.lanes:
                flow.renew(self._at_ns)
        either = self._reads.changed or self._writes.changed
        for flow, other in ((self._reads, self._writes), (self._writes, self._reads)):
            if not flow.lanes:
                flow.leave_ns = flow.due_ns = math.inf
            elif flow.changed or (either and flow.speed.duplex < 1):
                flow.retime(self._at_ns, other.drain_ns())
            due_ns = min(due_ns, flow.due_ns)
        self._due_ns = due_ns

    def _advance(self, to_ns: float) -> None:
        """Bring the model to to_ns, and let happen what is due on the way."""
        while self._due_ns <= to_ns:
            self._move(self._due_ns)
            self._happen()
        if to_ns > self._at_ns:
            self._move(to_ns)

    def _move(self, to_ns: float) -> None:
        elapsed_ns = max(0.0, to_ns - self._at_ns)
        for flow in self._flows:
            flow.move(to_ns, elapsed_ns)
        self._at_ns = max(self._at_ns, to_ns)

    def _happen(self, unseen: bool = False) -> None:
        for flow in self._flows:
            if flow.leave_ns <= self._at_ns + _NS_ROUNDING:
                self._leave(flow.ring.reach_leave())
                while flow.lanes and flow.ring.ns_until_leave() <= _NS_ROUNDING:
                    if unseen and _is_last(flow.ring.next_to_leave()):
                        break
                    self._leave(flow.ring.reach_leave())
            if flow.bursting and flow.lanes and flow.credit_bytes <= _BYTES_ROUNDING:
                flow.bursting, flow.changed = False, True
        while self._opening and self._opening[0][0] <= self._at_ns:
            self._enter(heappop(self._opening)[2])
        for pool in self._pools:
            self._grant(pool)
        self._retime()

    def _arm(self) -> None:
        """Wake when the next thing is due. A timer that fires too early only arms again."""
        if math.isinf(self._due_ns):
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        when = self._loop.time() + max(0.0, self._due_ns - self._clock_ns()) / NS_PER_SEC
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._advance(self._clock_ns())
        if isinstance(self._loop, VirtualLoop):
            self._look_ahead(self._loop.idle_until() * NS_PER_SEC)
        self._arm()

    def _look_ahead(self, to_ns: float) -> None:
        """Let happen by then what nobody else sees: in virtual time a timer costs more than the event."""
        while self._due_ns < to_ns and not self._ends_an_entry():
            self._move(self._due_ns)
            self._happen(unseen=True)

    def _ends_an_entry(self) -> bool:
        """Whether an entry is done with what happens next."""
        for flow in self._flows:
            if flow.leave_ns <= self._due_ns + _NS_ROUNDING and _is_last(flow.ring.next_to_leave()):
                return True
        return False


def _is_last(place: Place[_Ride]) -> bool:
    """Whether those that leave there next are the last of their entry."""
    return len(place.leaving) == 1 and len(place.rider.places) == 1
