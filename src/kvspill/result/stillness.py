"""How long storage or this program stood still: few operations meet that, so no percentile shows it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvspill.measure.storage_speed import BUSY, SLOW_DELETES
from kvspill.measure.timeline import Timeline
from kvspill.records import NS_PER_SEC
from kvspill.result.measured import Measured
from kvspill.result.schema_honesty import Honesty

_SECONDS = 1.0
_SHARE = 0.05
"""A standstill longer than this share of the window is beyond any P95 of the time, whatever that of the
operations is: those that would have come meanwhile were not asked for."""


def too_still(seconds: float | None, window_seconds: float) -> bool:
    """Whether a standstill of a device or of this program leaves no verdict on the rest."""
    return seconds is not None and seconds > max(_SECONDS, _SHARE * window_seconds)


def client_still_seconds(honesty: Honesty) -> float:
    """The longest lag of the event loop: one stop is in no p99."""
    return (honesty.event_loop_lag_ms or {}).get("max", 0.0) / 1000


class Standstill(NamedTuple):
    """Storage stood still for longer than leaves a verdict on the rest."""

    seconds: float
    by_deletes: bool


def storage_standstill(honesty: Honesty, window_seconds: float) -> Standstill | None:
    """The standstill that leaves no verdict on the storage; None where there was none."""
    by_deletes = (honesty.storage_delete_still_seconds or 0.0) > (honesty.storage_still_seconds or 0.0)
    seconds = honesty.storage_delete_still_seconds if by_deletes else honesty.storage_still_seconds
    return Standstill(seconds, by_deletes) if seconds and too_still(seconds, window_seconds) else None


def storage_delete_still_seconds(measured: Measured) -> float | None:
    """How long storage was at nothing but deletes that each took longer than a second, in all.

    No percentile that is judged shows deletes: so their time is added up. Where the window ends in one, the
    wait for what was in flight belongs to it. None where storage is a model.
    """
    storage, recorder = measured.tier("storage"), measured.recorder
    if storage is None or storage.modelled:
        return None
    columns = recorder.timeline.columns(recorder.window_end_ns)
    slow = columns.get(SLOW_DELETES)
    if slow is None:
        return 0.0
    busy = columns.get(BUSY, [0] * len(slow))
    alone = [max(0, slow_ns - busy_ns) for slow_ns, busy_ns in zip(slow, busy, strict=True)]
    return sum(alone) / NS_PER_SEC + (_drain_seconds(measured) if alone[-1] else 0.0)


def storage_still_seconds(measured: Measured) -> float | None:
    """The longest time without a byte of storage with operations under way, in whole steps of the timeline.

    Where the window ends in one, the wait for what was in flight belongs to it. None where storage is a model
    or nobody looked.
    """
    storage, recorder = measured.tier("storage"), measured.recorder
    if storage is None or storage.modelled:
        return None
    columns = recorder.timeline.columns(recorder.window_end_ns)
    under_way = columns.get("storage_in_flight")
    if not under_way:
        return None
    still = [
        bool(count) and not read and not written
        for count, read, written in zip(
            under_way, _bytes(columns, "read", under_way), _bytes(columns, "write", under_way), strict=True
        )
    ]
    lengths = _lengths(recorder.timeline, measured.wall_seconds, len(still))
    longest = so_far = 0.0
    for is_still, seconds in zip(still, lengths, strict=True):
        so_far = so_far + seconds if is_still else 0.0
        longest = max(longest, so_far)
    return max(longest, so_far + _drain_seconds(measured) if so_far else 0.0)


def _drain_seconds(measured: Measured) -> float:
    return max(0, measured.facts.finished_ns - measured.recorder.window_end_ns) / NS_PER_SEC


def _bytes(columns: Mapping[str, Sequence[int]], verb: str, like: Sequence[int]) -> Sequence[int]:
    return columns.get(f"storage_{verb}_bytes") or [0] * len(like)


def _lengths(timeline: Timeline, window_seconds: float, steps: int) -> list[float]:
    """Each step's part of the window; the last one may be cut."""
    whole = float(timeline.step_seconds)
    return [whole] * (steps - 1) + [max(0.0, window_seconds - whole * (steps - 1))]
