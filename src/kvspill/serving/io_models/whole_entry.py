"""Whole entries: those of earlier that a request reads, and its own, read again and again while pinned."""

from collections.abc import Callable, Sequence

from kvspill.cache.cache import Cache
from kvspill.cache.options import Put
from kvspill.cache.tier import Entry
from kvspill.models.groups import KvSize
from kvspill.records import HitType, LookupKind, Outcome, Purpose
from kvspill.serving.io_models import Service

_DECODE = ((Purpose.DECODE, HitType.USER),)


async def read_or_rebuild(
    service: Service, cache: Cache, kv: KvSize, key: str, tokens: int, kind: LookupKind
) -> bool:
    """Read an entry of earlier; one that was evicted is written again (C3). True for a hit."""
    purpose, nbytes = kind[0], kv.of(tokens)
    (outcome,) = await service.prefill(cache.get([key], [kind]))
    if outcome is Outcome.HIT:
        service.reuse(nbytes)
    elif outcome is Outcome.ERROR:
        service.fail(f"{purpose} read")
    else:
        put = await service.prefill(cache.put([key], nbytes, purpose, tokens=tokens))
        if put.failure is not None:
            service.fail(f"{purpose} rebuild: {put.failure}")
    return outcome is Outcome.HIT


async def serve_own(
    service: Service,
    cache: Cache,
    kv: KvSize,
    tokens: int,
    reads: int,
    give_up: Callable[[Sequence[Entry]], None],
) -> None:
    """Write the request's entry, read it so many times, to the end even where a read fails, and give it up.

    A request whose write failed has failed (C3), and there is nothing to read.
    """
    key, nbytes = service.request.key, kv.of(tokens)
    put = await service.prefill(cache.put([key], nbytes, Purpose.PREFILL, tokens=tokens, pin=True))
    if put.failure is not None:
        service.fail(f"write: {put.failure}")
        return
    try:
        for _ in range(reads):
            (outcome,) = await service.decode(cache.load(put.entries, _DECODE))
            if outcome is Outcome.HIT:
                service.read_bytes += nbytes
            elif outcome is Outcome.ERROR:
                service.fail("decode read")
            else:
                # The store itself dropped it: like any miss it is written again.
                give_up(put.entries)
                put = Put()
                put = await service.decode(cache.put([key], nbytes, Purpose.PREFILL, tokens=tokens, pin=True))
                if put.failure is not None:
                    service.fail(f"rebuild: {put.failure}")
                    return
    finally:
        give_up(put.entries)
