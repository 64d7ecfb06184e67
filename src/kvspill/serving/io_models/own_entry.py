"""A request's own entry: written whole, then read again and again while it is pinned."""

from kvspill.cache.cache import Cache
from kvspill.cache.tier import Entry
from kvspill.records import HitType, Outcome, Purpose
from kvspill.serving.io_models import Service


async def write_own(service: Service, cache: Cache, nbytes: int, reads: int) -> tuple[Entry | None, int]:
    """Write the request's entry; returns it pinned, or None, and how many of the reads are left.

    A request whose write failed has failed (C3). It still moves the bytes that it meant to read, by writing
    again: otherwise a fault would spare the device and raise the others' score.
    """
    key = service.request.key
    put = await service.prefill(cache.put(key, nbytes, Purpose.PREFILL, pin=True))
    if put.entry is None:
        service.fail(f"write: {put.failure}")
    while put.entry is None and reads:
        put = await service.decode(cache.put(key, nbytes, Purpose.PREFILL, pin=True))
        reads -= 1
    return put.entry, reads


async def read_own(service: Service, cache: Cache, entry: Entry, reads: int) -> None:
    """Read the pinned entry so many times, to the end even where a read fails."""
    for _ in range(reads):
        outcome = await service.decode(cache.read_pinned(entry, Purpose.DECODE, HitType.USER))
        if outcome is Outcome.HIT:
            service.read_bytes += entry.ref.nbytes
        else:
            service.fail("decode read")
