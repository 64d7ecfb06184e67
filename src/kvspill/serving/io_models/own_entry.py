"""A request's own entry: written whole, then read again and again while it is pinned."""

from kvspill.cache.cache import Cache
from kvspill.cache.tier import Entry
from kvspill.records import HitType, Outcome, Purpose
from kvspill.serving.io_models import Service


async def write_own(service: Service, cache: Cache, nbytes: int, reads: int) -> Entry | None:
    """Write the request's entry and return it pinned.

    A request whose write failed has failed (C3); it makes up for the write and the reads it meant to do.
    """
    put = await service.prefill(cache.put(service.request.key, nbytes, Purpose.PREFILL, pin=True))
    if put.entry is None:
        service.fail(f"write: {put.failure}")
        await service.prefill(cache.make_up(nbytes))
        await service.decode(cache.make_up(nbytes * reads))
    return put.entry


async def read_own(service: Service, cache: Cache, entry: Entry, reads: int) -> None:
    """Read the pinned entry so many times, to the end even where a read fails."""
    for _ in range(reads):
        outcome = await service.decode(cache.read_pinned(entry, Purpose.DECODE, HitType.USER))
        if outcome is Outcome.HIT:
            service.read_bytes += entry.ref.nbytes
        else:
            service.fail("decode read")
            await service.decode(cache.make_up(entry.ref.nbytes))
