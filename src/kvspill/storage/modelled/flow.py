"""Reads or writes in flight on a modelled device: their lanes, their pace and their bursts."""

import math
from collections import deque

from kvspill.storage.direction import Direction
from kvspill.storage.modelled.abreast import Abreast
from kvspill.storage.modelled.ring import Place, Ring
from kvspill.storage.modelled.transfers import Transfer

BYTES_ROUNDING = 1.0
NS_ROUNDING = 1e-2
"""Less than that is no time and no work: a moment too short for the clock must not be waited for."""
_RESUME_SHARE = 0.05
"""A burst begins again once so much of the allowance is back: it must not be taken in crumbs."""


class Ride:
    """Equal entries whose lanes move in step."""

    __slots__ = ("flow", "left", "piece_bytes", "places", "reserved", "transfer", "wanted")

    def __init__(self, transfer: Transfer, flow: "Flow", pieces: int):
        self.transfer = transfer
        self.flow = flow
        self.left = pieces
        """Pieces of each entry that no lane has taken up yet."""
        self.piece_bytes = max(1.0, transfer.nbytes / pieces)
        self.reserved = 0
        """Further lanes that will join once the entry is open."""
        self.wanted = 0
        """Lanes of each entry that may still join."""
        self.places: list[Place[Ride]] = []

    def settle(self) -> None:
        """Count the pieces that lanes have taken up by now: none has left, so each found one every turn."""
        for place in self.places:
            self.left -= place.lanes * self.flow.ring.taken(place)

    def plan(self) -> None:
        """When lanes will leave: those that are served first take the pieces that are left, in turn."""
        ring, places = self.flow.ring, self.places
        if len(places) > 1:
            places = ring.in_order(places)
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

    def split(self, count: int) -> "Ride":
        """Keep the first `count` entries; the others wait on, as another ride."""
        return Ride(self.transfer.split(count), self.flow, self.left)

    def moved_bytes(self) -> int:
        """What one of the entries has moved by now."""
        pieces_left = sum(self.flow.ring.turns_left(place) for place in self.places)
        nbytes = self.transfer.nbytes
        return min(nbytes, max(0, nbytes - round(pieces_left * self.piece_bytes)))


class Flow:
    """Reads or writes in flight. In one turn the device moves every piece in flight once."""

    __slots__ = (
        *("asked_ns", "bursting", "changed", "credit_bytes", "crowded", "due_ns", "lanes", "leave_ns"),
        *(
            "opened_ns",
            "passed_bytes",
            "pool",
            "resume_ns",
            "ring",
            "row_ns",
            "served",
            "slice_end_ns",
            "speed",
            "turn_ns",
        ),
    )

    def __init__(self, speed: Direction, pool: "Pool"):
        self.speed = speed
        self.pool = pool
        self.ring: Ring[Ride] = Abreast() if speed.side_by_side else Ring()
        self.turn_ns = math.inf
        self.lanes = 0
        self.opened_ns = 0.0
        """When the next entry can be opened."""
        self.credit_bytes = speed.burst_bytes
        self.bursting = speed.burst_bytes > 0
        self.slice_end_ns = 0.0
        self.resume_ns = math.inf
        """When the piece that a slice had no room for may pass, where one waits."""
        self.row_ns = 0.0
        """When the first of the slices began that follow each other."""
        self.passed_bytes = 0.0
        """What has passed since."""
        self.asked_ns = -1e18
        """When a piece passed last."""
        self.crowded = False
        """Whether more pieces waited for this slice than it allows: those that it does pass together."""
        self.served: list[tuple[Ride, int]] = []
        """Lanes that then found no further piece: they are free once all that passed together is moved."""
        self.changed = False
        """Whether anything is otherwise than when the times below were found."""
        self.leave_ns = self.due_ns = math.inf
        """When the next lanes leave, and when anything of this flow happens."""

    def opening_ns(self, at_ns: float, transfer: Transfer) -> float:
        """How long a transfer's entries take to be open, those before them in line included."""
        begin_ns = max(at_ns, self.opened_ns)
        entries = transfer.count * transfer.chained
        self.opened_ns = begin_ns + entries * self.speed.open_apart_ns
        more_ns = (transfer.count - 1) * self.speed.open_apart_ns
        return begin_ns - at_ns + more_ns + self.speed.open_ns * transfer.chained

    def close_up(self) -> None:
        """Before others join: lanes that were served a moment ago go to the end of the line."""
        behind = self.ring.part_head()
        if behind is not None:
            behind.rider.places.append(behind)

    def riders(self) -> list[Ride]:
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
            waited = self.stalled and self.resume_ns < math.inf
            if at_ns >= (self.resume_ns if waited else self.slice_end_ns) - NS_ROUNDING:
                self._next_slice(at_ns, waited)
                self.bursting = self.changed = True
        elif not self.bursting and self.credit_bytes >= _RESUME_SHARE * speed.burst_bytes > 0:
            self.bursting = self.changed = True

    def _next_slice(self, at_ns: float, waited: bool) -> None:
        """Slices follow each other, and what one leaves over goes with the next; a pause ends their row.

        So does the throttle of the kernel, whose clock ends a row at a whole number of slices.
        """
        slice_ns, whole_bytes = self.speed.slice_ns, self.speed.burst_bytes
        self.resume_ns = math.inf
        if not waited and at_ns > (self.asked_ns // slice_ns + 2) * slice_ns:
            self.row_ns, self.passed_bytes = at_ns, 0.0
        slices = int((at_ns - self.row_ns + NS_ROUNDING) / slice_ns)
        if slices > 1:
            # The slice before this one is kept. What is older is settled once the next piece has passed.
            self.row_ns += (slices - 1) * slice_ns
            older_bytes = (slices - 1) * whole_bytes
            self.passed_bytes = max(-_of_piece(*self.ring.head_left()), self.passed_bytes - older_bytes)
            slices = 1
        self.slice_end_ns = self.row_ns + (slices + 1) * slice_ns
        self.credit_bytes = max(0.0, (slices + 1) * whole_bytes - self.passed_bytes)
        self.asked_ns = at_ns
        self.crowded = waited and self.ring.nbytes > self.credit_bytes

    def crowd_ended(self) -> list[tuple[Ride, int]]:
        """The lanes that are free, once the pieces that passed together are done.

        The device moves them side by side, so none is done before the others: lanes with more to move are in
        line again before anybody hears of an entry that is done, and asks for another.
        """
        if self.served and (self.stalled or not self.lanes or not self.crowded):
            served, self.served, self.changed = self.served, [], True
            return served
        return []

    @property
    def stalled(self) -> bool:
        """Whether what the slice allows has been used up."""
        return not self.bursting and self.speed.slice_ns > 0

    def drain_ns(self, in_flight: int) -> float:
        """How long the device takes for these bytes alone, with so much in flight both ways."""
        if self.stalled:
            return 0.0
        speed = self.speed
        return self.ring.nbytes * (speed.burst_ns_per_byte if self.bursting else speed.paced(in_flight))

    def spared(self, other: "Flow") -> float:
        """How far this is spared by what is in flight the other way."""
        return self.speed.burst_duplex if self.bursting and other.bursting else self.speed.duplex

    def retime(self, at_ns: float, other: "Flow") -> None:
        """When what happens, beside what is in flight the other way."""
        speed, self.changed = self.speed, False
        slice_end_ns = self.slice_end_ns if speed.slice_ns else math.inf
        if self.stalled:
            if self.resume_ns == math.inf:
                # A piece passes whole: without room for it in a slice, it waits for what is missing as well.
                missing_bytes = _of_piece(*self.ring.head_left())
                self.resume_ns = slice_end_ns + missing_bytes * speed.ns_per_byte + speed.tick_ns
            self.turn_ns = self.leave_ns = math.inf
            self.due_ns = self.resume_ns
            return
        in_flight = self.lanes + (0 if other.stalled else other.lanes)
        shared_ns = self.drain_ns(in_flight) + (1 - self.spared(other)) * other.drain_ns(in_flight)
        alone_ns = speed.piece_ns + speed.alone_ns_per_byte * self.ring.nbytes / self.lanes
        self.ring.pace(max(shared_ns, 1e-3) / self.ring.nbytes, alone_ns)
        self.turn_ns = self.ring.turn_ns()
        self.leave_ns = at_ns + self.ring.ns_until_leave()
        spent_ns = at_ns + self._spent_in_ns(self.bytes_per_ns())
        self.due_ns = min(self.leave_ns, spent_ns, slice_end_ns)


def _of_piece(place: Place[Ride], left_bytes: float) -> float:
    """What is still to be moved of the piece that is served now, or of the next."""
    piece_bytes = place.rider.piece_bytes
    rest_bytes = left_bytes % piece_bytes
    return rest_bytes if rest_bytes > BYTES_ROUNDING else piece_bytes


class Pool:
    """Lanes, those who wait for one, and those who could do with more."""

    __slots__ = ("free", "waiting", "wanting")

    def __init__(self, lanes: int):
        self.free = lanes
        self.waiting: deque[Ride] = deque()
        self.wanting: list[Ride] = []
