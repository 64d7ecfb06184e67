"""What the device moved beyond what was asked of it, and whether that is much of its time."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvspill.records import GIB
from kvspill.result.device_load import device_load
from kvspill.result.schema_honesty import ByteCounts, Caution
from kvspill.result.warnings import devices
from kvspill.texts import size_text, speed_text

EXCESS = 1.25
"""Traffic above this multiple of what was asked comes from somebody else, or from amplification."""
NOTEWORTHY_SHARE = 0.05
"""Who takes less of the device's time changes its figures by less than they vary anyway."""
MIN_COMPARED_BYTES = 64 << 20
"""Below this volume a file system's own blocks and other programs drown the comparison."""
MUCH_BYTES = 1 << 30


class _More(NamedTuple):
    """What the device did in one direction."""

    verb: str
    times: float
    nbytes: float
    """Beyond what was asked."""


def excess_cautions(
    seen: ByteCounts, counters: Mapping[str, Any] | None, seconds: float
) -> Iterator[Caution]:
    """Serious where others took a noteworthy part of the device's time, or where nobody knows that part."""
    rows = (
        ("read", seen.device_to_asked_read, seen.asked_read_bytes, seen.device_read_bytes),
        ("wrote", seen.device_to_asked_written, seen.asked_written_bytes, seen.device_written_bytes),
    )
    over = [
        _More(verb, times, (1 - 1 / times) * moved)
        for verb, times, asked, moved in rows
        if times is not None and asked is not None and moved is not None and _is_excess(times, asked)
    ]
    if not over:
        return
    share = _share_of_time(seen, sum(more.nbytes for more in over), device_load(counters, seconds))
    if share is None or share >= NOTEWORTHY_SHARE:
        did = " and ".join(
            f"{more.verb} {more.times:.2f} times what was asked of it ({_amount(more, seconds)} more)"
            for more in over
        )
        of_its_time = "" if share is None else f", about {share:.0%} of its time"
        yield devices.DEVICE_EXCESS.of(did=f"{did}{of_its_time}")
        return
    did = " and ".join(f"{more.verb} {_amount(more, seconds)}" for more in over)
    small = f"about {share:.1%}" if share >= 0.001 else "less than 0.1%"
    yield devices.DEVICE_SMALL_EXCESS.of(did=did, share=small)


def _is_excess(times: float, asked_bytes: int) -> bool:
    """Who crowds a run out leaves it few bytes of its own: then what others moved must be a lot."""
    others_bytes = (times - 1) * asked_bytes
    return times > EXCESS and (asked_bytes >= MIN_COMPARED_BYTES or others_bytes >= MUCH_BYTES)


def _share_of_time(
    seen: ByteCounts, more_bytes: float, load: Mapping[str, float | None] | None
) -> float | None:
    """By the device's utilisation, which its bytes share; None where the kernel does not count it."""
    busy = None if load is None else load["utilisation"]
    if busy is None:
        return None
    return min(1.0, busy) * more_bytes / ((seen.device_read_bytes or 0) + (seen.device_written_bytes or 0))


def _amount(more: _More, seconds: float) -> str:
    speed = f", {speed_text(more.nbytes / GIB / seconds)}" if seconds else ""
    return f"{size_text(more.nbytes)}{speed}"
