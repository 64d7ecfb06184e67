"""Waits for room in the last tier, and whether the device was saturated: then they are its consequence."""

from collections.abc import Sequence

from kvspill.result.schema import Result
from kvspill.texts import counted

IN_FLIGHT = "storage_in_flight_mean"
SATURATED = 0.9
"""From this share of the I/O slots on, more operations at once would find no free one."""


def is_saturated(in_flight: float | None, slots: int) -> bool:
    """Whether nearly all I/O slots were in use, on average; False where nobody knows."""
    return in_flight is not None and in_flight >= SATURATED * slots


def under_way(in_flight: float, slots: int) -> str:
    """The figure that shows it, in words."""
    return f"{counted(round(in_flight), 'I/O')} under way on average, {counted(slots, 'I/O slot')}"


def saturated(result: Result) -> str | None:
    """The same of a result; None where the device was not saturated, or it is not known."""
    in_flight, slots = result.number(IN_FLIGHT), _slots(result)
    return under_way(in_flight or 0.0, slots) if is_saturated(in_flight, slots) else None


def room_ms(result: Result, calls_ms: float) -> float:
    """How long requests waited for room in the last tier, no longer than their calls took."""
    return min(calls_ms, 1000 * (result.number("total_room_wait_time") or 0.0))


def room_share(result: Result, parts_ms: Sequence[float], inside_ms: float, calls_ms: float) -> float | None:
    """The share of cache I/O that is waits for room in the last tier; None where another part is larger."""
    waited_ms = room_ms(result, calls_ms)
    if not waited_ms:
        return None
    # Operations of a batch go on side by side: of the time of the calls they have what the waits leave.
    left_ms = calls_ms - waited_ms
    known_ms = min(inside_ms, left_ms)
    largest_ms = max(parts_ms) * known_ms / inside_ms if inside_ms else 0.0
    return waited_ms / calls_ms if waited_ms > max(largest_ms, left_ms - known_ms) else None


def _slots(result: Result) -> int:
    """The I/O slots of all ranks together."""
    ranks = 1 if result.ranks is None else result.ranks.size
    config = result.config
    return ranks * (int(config.get("io_threads") or 1) + int(config.get("write_threads") or 0))
