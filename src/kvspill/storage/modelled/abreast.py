"""Pieces that a device moves side by side, none before the others."""

from kvspill.storage.modelled.ring import Place, Rider, Ring

_ROUNDING = 1e-6


class Abreast(Ring[Rider]):
    """In the place of a line: every lane moves as fast as every other, and takes its next piece at once.

    So all that ever changes is how fast a lane is. How far those that began at one moment have come follows
    from how many bytes a lane has moved that was busy all the time.
    """

    __slots__ = ("_lane_bytes", "_lane_ns_per_byte", "_lanes")

    def __init__(self) -> None:
        super().__init__()
        self._lanes = 0
        self._lane_bytes = 0.0
        """What a lane has moved that was busy all the time."""
        self._lane_ns_per_byte = 0.0

    def pace(self, ns_per_byte: float, alone_ns: float) -> None:
        least_ns = alone_ns * self._lanes / self.nbytes
        self._lane_ns_per_byte = max(ns_per_byte * self._lanes, least_ns)

    def turn_ns(self) -> float:
        return self._lane_ns_per_byte * self.nbytes / self._lanes

    def part_head(self) -> None:
        """Who joins waits for nobody."""

    def join(self, rider: Rider, lanes: int, nbytes: float, piece_bytes: float) -> Place[Rider]:
        self._next = None
        self.nbytes += nbytes
        self._lanes += round(nbytes / piece_bytes)
        # The moment at which it begins, as bytes of a lane.
        place = Place(rider, lanes, nbytes, piece_bytes, 0, self._lane_bytes)
        self._places.append(place)
        return place

    def leave(self, place: Place[Rider], nbytes: float) -> None:
        place.nbytes -= nbytes
        self.nbytes -= nbytes
        self._lanes -= round(nbytes / place.piece_bytes)
        self._next = None
        if not place.leaving:
            self._places.remove(place)
        if not self._places:
            self.nbytes = self._lane_bytes = 0.0
            self._lanes = 0

    def order(self, place: Place[Rider]) -> tuple[int, int]:
        turns = (self._lane_bytes - place.taken_ns) / place.piece_bytes
        return int(turns + _ROUNDING) + 1, 0

    def in_order(self, places: list[Place[Rider]]) -> list[Place[Rider]]:
        return sorted(places, key=lambda place: _reached(place, self.order(place)[0]))

    def next_to_leave(self) -> Place[Rider]:
        if self._next is None:
            self._next = min(self._places, key=_left)
        return self._next

    def ns_until_leave(self) -> float:
        return max(0.0, _left(self.next_to_leave()) - self._lane_bytes) * self._lane_ns_per_byte

    def reach_leave(self) -> Place[Rider]:
        place = self.next_to_leave()
        self._lane_bytes = max(self._lane_bytes, _left(place))
        return place

    def serve(self, to_ns: float) -> None:
        if self._places and to_ns > self._now_ns:
            moved_bytes = (to_ns - self._now_ns) / self._lane_ns_per_byte
            self._lane_bytes = min(self._lane_bytes + moved_bytes, _left(self.next_to_leave()))
        self._now_ns = to_ns

    def wait(self, to_ns: float) -> None:
        self._now_ns = to_ns

    def turns_left(self, place: Place[Rider]) -> float:
        first = self.order(place)[0]
        left = sum(lanes * (turn - first) for turn, lanes in place.leaving)
        return left + place.lanes * (_reached(place, first) - self._lane_bytes) / place.piece_bytes


def _reached(place: Place[Rider], turn: int) -> float:
    """What a lane will have moved once those of a place are done with that piece of theirs."""
    return place.taken_ns + turn * place.piece_bytes


def _left(place: Place[Rider]) -> float:
    return _reached(place, place.leave_turn)
