"""The line of pieces in front of a device as a ring: a lane that was served goes to its end again."""

import math
from operator import attrgetter
from typing import Generic, TypeVar

Rider = TypeVar("Rider")
_leave_turn = attrgetter("leave_turn")
_ROUNDING = 1e-9


class Place(Generic[Rider]):
    """Lanes that joined the line together, each with a piece."""

    __slots__ = ("lanes", "leave_turn", "leaving", "nbytes", "piece_bytes", "rider", "since", "taken_ns")

    def __init__(
        self, rider: Rider, lanes: int, nbytes: float, piece_bytes: float, since: int, taken_ns: float
    ):
        self.rider = rider
        self.lanes = lanes
        self.nbytes = nbytes
        """Bytes of all pieces that stand here."""
        self.piece_bytes = piece_bytes
        self.since = since
        """The turn in which the pieces that stand here took their place."""
        self.taken_ns = taken_ns
        """When they did."""
        self.leaving: list[tuple[int, int]] = []
        """In which turn how many of the lanes are served for the last time, the first of them first."""
        self.leave_turn = 0
        """That turn of the first of them."""

    def plan(self, leaving: list[tuple[int, int]]) -> None:
        """From now on lanes leave so."""
        self.leaving, self.leave_turn = leaving, leaving[0][0]

    def parted(self, lanes: int) -> list[tuple[int, int]]:
        """Give away the plan of so many lanes: the first in line have the most turns left."""
        given: list[tuple[int, int]] = []
        while lanes:
            turn, last = self.leaving.pop()
            taken = min(last, lanes)
            given.insert(0, (turn, taken))
            lanes -= taken
            if last > taken:
                self.leaving.append((turn, last - taken))
        self.leave_turn = self.leaving[0][0]
        return given

    def left(self) -> int:
        """The lanes that leave next have left; returns how many."""
        _turn, lanes = self.leaving.pop(0)
        self.lanes -= lanes
        if self.leaving:
            self.leave_turn = self.leaving[0][0]
        return lanes


class Ring(Generic[Rider]):
    """Lanes wait in a line; the first is served, and comes back to the end with its next piece.

    So the order of lanes never changes but by those that join, at the end, and those that leave. When a lane
    has its turn, however many turns from now, follows from a sum over places. A piece is done once the line
    has come to it and its bytes are moved, and a piece alone takes some time at least.
    """

    __slots__ = (
        *("_alone_ns", "_head", "_next", "_now_ns", "_ns_per_byte", "_places", "_served"),
        *("begun_ns", "nbytes", "turn"),
    )

    def __init__(self) -> None:
        self._places: list[Place[Rider]] = []
        self._head = 0
        """The place that is served now: those before it have had this turn."""
        self._served = 0.0
        """The share of its bytes that has been moved."""
        self._next: Place[Rider] | None = None
        self._now_ns = 0.0
        self._ns_per_byte = self._alone_ns = 0.0
        self.begun_ns = -math.inf
        """When the piece that was done last had been asked for."""
        self.turn = 1
        self.nbytes = 0.0

    @property
    def places(self) -> list[Place[Rider]]:
        """All of them, in order."""
        return self._places

    def pace(self, ns_per_byte: float, alone_ns: float) -> None:
        """From now on bytes take so long, and a piece alone at least that."""
        self._ns_per_byte, self._alone_ns = ns_per_byte, alone_ns

    def turn_ns(self) -> float:
        """How long a whole turn takes."""
        whole_ns = self.nbytes * self._ns_per_byte
        return whole_ns if whole_ns > self._alone_ns else self._alone_ns

    def part_head(self) -> Place[Rider] | None:
        """Let those of the head's lanes that were served stand behind the others: who joins comes after them.

        Returns their new place, where there are such. Lanes that leave in this turn do so with the others.
        """
        if not self._places:
            return None
        place = self._places[self._head]
        served = int(self._served * place.lanes + _ROUNDING)
        going_on = sum([lanes for turn, lanes in place.leaving if turn > self.turn])
        parted = min(served, going_on)
        if not 0 < parted < place.lanes:
            return None
        lane_bytes, waiting = place.nbytes / place.lanes, place.lanes - parted
        behind = Place(place.rider, parted, parted * lane_bytes, place.piece_bytes, place.since, self._now_ns)
        behind.plan(place.parted(parted))
        self._served = (self._served * place.lanes - parted) / waiting
        place.lanes, place.nbytes = waiting, waiting * lane_bytes
        self._places.insert(self._head, behind)
        self._head += 1
        self._next = None
        return behind

    def join(self, rider: Rider, lanes: int, nbytes: float, piece_bytes: float) -> Place[Rider]:
        """Stand at the end of the line; the first turn of those who join is the next."""
        self._next = None
        self.nbytes += nbytes
        if not self._places:
            self._head, self._served, self.turn = 0, 0.0, 1
            self._places.append(Place(rider, lanes, nbytes, piece_bytes, 0, self._now_ns))
            return self._places[0]
        place = Place(rider, lanes, nbytes, piece_bytes, self.turn, self._now_ns)
        self._places.insert(self._head, place)
        self._head += 1
        return place

    def leave(self, place: Place[Rider], nbytes: float) -> None:
        """Some of the lanes that have just been served leave; with the last of them the place goes."""
        place.nbytes -= nbytes
        self.nbytes -= nbytes
        self._next = None
        if place.leaving:
            return
        index = self._places.index(place)
        del self._places[index]
        if index < self._head:
            self._head -= 1
        if not self._places:
            self.nbytes = 0.0
        elif self._head == len(self._places):
            self._wrap()

    def planned(self) -> None:
        """Somebody's last turn has changed."""
        self._next = None

    def taken(self, place: Place[Rider]) -> int:
        """How many turns the lanes of a place have had since they were asked last."""
        last = self.order(place)[0] - 1
        turns, place.since = last - place.since, last
        return turns

    def order(self, place: Place[Rider]) -> tuple[int, int]:
        """When a place is served next: the turn, and the place in it."""
        index = self._places.index(place)
        return (self.turn if index >= self._head else self.turn + 1), index

    def in_order(self, places: list[Place[Rider]]) -> list[Place[Rider]]:
        """Those that are served first before the others."""
        return sorted(places, key=self.order)

    def next_to_leave(self) -> Place[Rider]:
        """Whose lanes leave next."""
        if self._next is None:
            self._next = min(self._places, key=_leave_turn)
        return self._next

    def ns_until_leave(self) -> float:
        """How long until the next lanes leave."""
        place = self.next_to_leave()
        turn, index = self.order(place)
        until_ns = self._reached_ns(index) - self._now_ns
        if place.leave_turn > turn:
            until_ns += (place.leave_turn - turn) * self.turn_ns()
        return until_ns if until_ns > 0.0 else 0.0

    def _reached_ns(self, index: int) -> float:
        """When a place will have been served next."""
        places, head = self._places, self._head
        at_ns = self._head_done_ns()
        if index == head:
            return at_ns
        ns_per_byte, alone_ns = self._ns_per_byte, self._alone_ns
        ahead = places[head + 1 : index + 1] if index > head else places[head + 1 :] + places[: index + 1]
        for place in ahead:
            at_ns += place.nbytes * ns_per_byte
            least_ns = place.taken_ns + alone_ns
            if least_ns > at_ns:
                at_ns = least_ns
        return at_ns

    def _head_done_ns(self) -> float:
        place = self._places[self._head]
        done_ns = self._now_ns + (1 - self._served) * place.nbytes * self._ns_per_byte
        least_ns = place.taken_ns + self._alone_ns
        return done_ns if done_ns > least_ns else least_ns

    def head_left(self) -> tuple[Place[Rider], float]:
        """The place that is served now, and how many of its bytes are still to be moved."""
        place = self._places[self._head]
        whole_ns = max(place.nbytes * self._ns_per_byte, self._alone_ns)
        left_ns = min(whole_ns, max(0.0, self._head_done_ns() - self._now_ns))
        return place, place.nbytes * left_ns / whole_ns if whole_ns else 0.0

    def reach_leave(self) -> Place[Rider]:
        """Now the lanes that leave next have been served."""
        place = self.next_to_leave()
        self.turn, self._head = place.leave_turn, self._places.index(place)
        self._pass(self._now_ns)
        return place

    def serve(self, to_ns: float) -> None:
        """Time passes until then, in which nobody leaves."""
        if not self._places:
            self._now_ns = to_ns
            return
        while (done_ns := self._head_done_ns()) <= to_ns:
            place = self.next_to_leave()
            if place is self._places[self._head] and place.leave_turn <= self.turn:
                # Its lanes leave when somebody sees to it.
                self._served = 1.0
                break
            self._pass(done_ns)
            whole_ns = self.turn_ns()
            turns = int((to_ns - done_ns) / whole_ns)
            if turns > 1:
                # The first turn after a change differs from those that follow, which are all alike.
                self._skip(turns - 1, whole_ns)
        else:
            bytes_ns = self._places[self._head].nbytes * self._ns_per_byte
            self._served = min(1.0, self._served + (to_ns - self._now_ns) / bytes_ns)
        self._now_ns = to_ns

    def wait(self, to_ns: float) -> None:
        """Time passes until then, in which nobody is served."""
        for place in self._places:
            place.taken_ns += to_ns - self._now_ns
        self._now_ns = to_ns

    def turns_left(self, place: Place[Rider]) -> float:
        """Pieces that the lanes of a place still have to move, the one under way in part."""
        first, index = self.order(place)
        left = sum(lanes * (turn - first) for turn, lanes in place.leaving)
        return left + place.lanes * min(1.0, (self._reached_ns(index) - self._now_ns) / self.turn_ns())

    def _skip(self, turns: int, whole_ns: float) -> None:
        self.turn += turns
        self._now_ns += turns * whole_ns
        for place in self._places:
            place.taken_ns += turns * whole_ns

    def _pass(self, at_ns: float) -> None:
        """The place that is served now has had its turn."""
        place = self._places[self._head]
        self.begun_ns = place.taken_ns
        place.taken_ns = self._now_ns = at_ns
        self._served = 0.0
        self._head += 1
        if self._head == len(self._places):
            self._wrap()

    def _wrap(self) -> None:
        self._head = 0
        self.turn += 1
