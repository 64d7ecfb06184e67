"""Pieces that a device moves side by side, none before the others."""

from kvspill.storage.modelled.ring import Place, Rider, Ring

_ROUNDING = 1e-6


class Abreast(Ring[Rider]):
    """In the place of a line: all pieces in flight are under way at once.

    A device takes pieces apart into small requests and serves all of them at the same time, so a short piece
    takes as long as a long one. All that ever changes is how long a turn takes; how far a lane has come
    follows from the turns of a lane that was busy all the time.
    """

    __slots__ = ("_turn_ns", "_turns")

    def __init__(self) -> None:
        super().__init__()
        self._turn_ns = 1.0
        self._turns = 0.0
        """Those of a lane that was busy all the time."""

    def pace(self, ns_per_byte: float, alone_ns: float) -> None:
        super().pace(ns_per_byte, alone_ns)
        self._turn_ns = super().turn_ns()

    def part_head(self) -> None:
        """Who joins waits for nobody."""

    def join(self, rider: Rider, lanes: int, nbytes: float, piece_bytes: float) -> Place[Rider]:
        self._next = None
        self.nbytes += nbytes
        # When it begins, in turns.
        place = Place(rider, lanes, nbytes, piece_bytes, 0, self._turns)
        self._places.append(place)
        return place

    def leave(self, place: Place[Rider], nbytes: float) -> None:
        place.nbytes -= nbytes
        self.nbytes -= nbytes
        self._next = None
        if not place.leaving:
            self._places.remove(place)
        if not self._places:
            self.nbytes = self._turns = 0.0

    def order(self, place: Place[Rider]) -> tuple[int, int]:
        return int(self._turns - place.taken_ns + _ROUNDING) + 1, 0

    def in_order(self, places: list[Place[Rider]]) -> list[Place[Rider]]:
        return sorted(places, key=lambda place: place.taken_ns + self.order(place)[0])

    def next_to_leave(self) -> Place[Rider]:
        if self._next is None:
            self._next = min(self._places, key=_leaves)
        return self._next

    def ns_until_leave(self) -> float:
        return max(0.0, _leaves(self.next_to_leave()) - self._turns) * self._turn_ns

    def reach_leave(self) -> Place[Rider]:
        place = self.next_to_leave()
        self._turns = max(self._turns, _leaves(place))
        return place

    def serve(self, to_ns: float) -> None:
        if self._places and to_ns > self._now_ns:
            turns = self._turns + (to_ns - self._now_ns) / self._turn_ns
            self._turns = min(turns, _leaves(self.next_to_leave()))
        self._now_ns = to_ns

    def wait(self, to_ns: float) -> None:
        self._now_ns = to_ns

    def turns_left(self, place: Place[Rider]) -> float:
        first = self.order(place)[0]
        left = sum(lanes * (turn - first) for turn, lanes in place.leaving)
        return left + place.lanes * (place.taken_ns + first - self._turns)


def _leaves(place: Place[Rider]) -> float:
    """When the next lanes of a place leave, in turns."""
    return place.taken_ns + place.leave_turn
