"""A modelled device behind lanes: entries in order of arrival, each moved in pieces by a few threads."""

import math
from collections.abc import Callable
from heapq import heappop, heappush

from kvspill.records import MIB, NS_PER_SEC, Verb
from kvspill.storage.modelled.flow import BYTES_ROUNDING, NS_ROUNDING, Flow, Pool, Ride
from kvspill.storage.modelled.ring import Place
from kvspill.storage.modelled.timer import Timer
from kvspill.storage.modelled.transfers import Transfer
from kvspill.storage.profiles import DeviceModel
from kvspill.world import VirtualLoop

_AWAKE_MAX = 2
"""Of lanes that are free at one moment, so many wait for the entry that is being opened; others go on to the
next. Pieces of reads that were recorded on a throttled device had on average 1.3 of 3."""


class LanedDevice:
    """Lanes in front of a device, in model time.

    An entry is taken up by one lane in order of arrival; once it is open, as many lanes join it as may and
    as are free. Each lane moves one piece after the other. The device serves pieces in order; a turn, in
    which it serves every lane once, takes as long as the bytes in flight. What becomes of an entry follows
    from when its lanes joined the line: events are per entry, not per piece (E8). What was not calibrated has
    no lanes to tell of: SharedDevice models that.
    """

    def __init__(self, model: DeviceModel, clock_ns: Callable[[], int]):
        self._model = model
        self._clock_ns = clock_ns
        self._piece_bytes = round(model.piece_mib * MIB)
        loads = Pool(model.lanes)
        stores = Pool(model.write_lanes) if model.write_lanes else loads
        self._pools = (loads,) if stores is loads else (loads, stores)
        self._reads = Flow(model.direction(Verb.READ), loads)
        self._writes = Flow(model.direction(Verb.WRITE), stores)
        self._flows = (self._reads, self._writes)
        self._opening: list[tuple[float, int, Ride]] = []
        self._sequence = 0
        self._at_ns = 0.0
        self._due_ns = math.inf
        """When the next thing happens."""
        self._crowd_ended_ns = -math.inf
        """When threads whose pieces had passed together were done last."""
        self._request_ns = 0.0
        """When the next request may be made, where their rate is limited."""
        self._timer = Timer(clock_ns, self._wake)

    def submit(self, transfer: Transfer, verb: Verb) -> None:
        """Take a transfer in; its batch is told when it is done."""
        self._advance(transfer.submitted_ns)
        flow = self._reads if verb is Verb.READ else self._writes
        flow.pool.waiting.append(Ride(transfer, flow, max(1, -(-transfer.nbytes // self._piece_bytes))))
        if flow.pool.free:
            self._grant(flow.pool)
            self._retime()
            self._arm()

    def cancel(self) -> None:
        """End everything now; what was served so far is reported as moved."""
        now_ns = self._clock_ns()
        self._advance(now_ns)
        for flow in self._flows:
            for ride in (*flow.riders(), *(served for served, _lanes in flow.served)):
                ride.transfer.finish(now_ns, "cancelled", ride.moved_bytes())
            flow.lanes, flow.ring = 0, type(flow.ring)()
            flow.served.clear()
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
        self._timer.cancel()

    def _grant(self, pool: Pool) -> None:
        """Free lanes go to entries under way first, the last one begun before the others, as threads do."""
        while pool.free:
            if pool.wanting:
                self._join(pool.wanting.pop())
            elif pool.waiting:
                self._take_up(pool.waiting.popleft())
            else:
                return

    def _take_up(self, ride: Ride) -> None:
        """One lane for each entry; the others wait on."""
        transfer, pool = ride.transfer, ride.flow.pool
        # Entries of one piece go in step; larger ones may get different numbers of lanes.
        together = pool.free if ride.left == 1 else 1
        if transfer.count > together:
            pool.waiting.appendleft(ride.split(together))
        pool.free -= transfer.count
        lanes_max = 1 if transfer.alone else self._model.lanes_per_entry
        ride.wanted = max(0, min(lanes_max, ride.left // self._model.pieces_per_lane) - 1)
        if transfer.count == 1 and not transfer.latency_ns:
            # A file is open before further threads are awake: they find its pieces before the next entry.
            # Threads whose pieces have just passed together are awake, and some are quicker than the file.
            most = _AWAKE_MAX if self._at_ns == self._crowd_ended_ns else ride.wanted
            ride.reserved = min(ride.wanted, pool.free, most)
            pool.free -= ride.reserved
        open_ns = ride.flow.opening_ns(self._at_ns, transfer)
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

    def _enter(self, ride: Ride) -> None:
        """The entry is open: its first lane begins, others may join."""
        pool = ride.flow.pool
        more = min(ride.wanted - ride.reserved, pool.free)
        joining = ride.reserved + more
        ride.wanted -= joining
        pool.free -= more
        ride.flow.close_up()
        self._add_lanes(ride, 1 + joining)
        ride.plan()
        if ride.wanted:
            pool.wanting.append(ride)

    def _join(self, ride: Ride) -> None:
        """Give free lanes to an entry that could do with more."""
        pool = ride.flow.pool
        if ride.wanted:
            ride.flow.close_up()
            ride.settle()
        wanted = min(ride.wanted, ride.left)
        assert wanted >= 0, "no lane takes a piece that is not there"
        if not wanted:
            return
        joining = min(wanted, pool.free)
        ride.wanted -= joining
        pool.free -= joining
        self._add_lanes(ride, joining)
        ride.plan()
        if ride.wanted and ride.left:
            pool.wanting.append(ride)

    def _add_lanes(self, ride: Ride, lanes: int) -> None:
        flow, count = ride.flow, lanes * ride.transfer.count
        ride.left -= lanes
        ride.places.append(flow.ring.join(ride, lanes, count * ride.piece_bytes, ride.piece_bytes))
        flow.lanes += count
        flow.changed = True

    def _leave(self, place: Place[Ride]) -> None:
        """Lanes that found no further piece leave; with the last one the entry is done."""
        ride = place.rider
        flow = ride.flow
        lanes = place.left() * ride.transfer.count
        flow.lanes -= lanes
        flow.asked_ns = max(flow.asked_ns, flow.ring.begun_ns)
        flow.changed = True
        flow.ring.leave(place, lanes * ride.piece_bytes)
        ride.wanted = 0
        if not place.leaving:
            ride.places.remove(place)
        if flow.crowded:
            flow.served.append((ride, lanes))
        else:
            self._free(ride, lanes)

    def _free(self, ride: Ride, lanes: int) -> None:
        """Lanes may take up something else; with the last one of an entry it is done."""
        ride.flow.pool.free += lanes
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
            elif flow.changed or (either and flow.speed.heeds_other):
                flow.retime(self._at_ns, other)
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
            if flow.leave_ns <= self._at_ns + NS_ROUNDING:
                self._leave(flow.ring.reach_leave())
                while flow.lanes and flow.ring.ns_until_leave() <= NS_ROUNDING:
                    if unseen and _is_last(flow.ring.next_to_leave()):
                        break
                    self._leave(flow.ring.reach_leave())
            if flow.bursting and flow.lanes and flow.credit_bytes <= BYTES_ROUNDING:
                flow.bursting, flow.changed = False, True
            for ride, lanes in flow.crowd_ended():
                self._crowd_ended_ns = self._at_ns
                self._free(ride, lanes)
        while self._opening and self._opening[0][0] <= self._at_ns:
            self._enter(heappop(self._opening)[2])
        for pool in self._pools:
            self._grant(pool)
        self._retime()

    def _arm(self) -> None:
        """Wake when the next thing is due."""
        if not math.isinf(self._due_ns):
            self._timer.set(self._due_ns)

    def _wake(self) -> None:
        self._advance(self._clock_ns())
        loop = self._timer.loop
        if isinstance(loop, VirtualLoop):
            self._look_ahead(loop.idle_until() * NS_PER_SEC)
        self._arm()

    def _look_ahead(self, to_ns: float) -> None:
        """Let happen by then what nobody else sees: in virtual time a timer costs more than the event."""
        while self._due_ns < to_ns and not self._ends_an_entry():
            self._move(self._due_ns)
            self._happen(unseen=True)

    def _ends_an_entry(self) -> bool:
        """Whether an entry is done with what happens next."""
        for flow in self._flows:
            if flow.served:
                return True
            if flow.leave_ns <= self._due_ns + NS_ROUNDING and _is_last(flow.ring.next_to_leave()):
                return True
        return False


def _is_last(place: Place[Ride]) -> bool:
    """Whether those that leave there next are the last of their entry."""
    return len(place.leaving) == 1 and len(place.rider.places) == 1
