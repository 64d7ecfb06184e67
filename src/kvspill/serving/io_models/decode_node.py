"""A decode node: requests read KV that was stored before the load, as often as their I/O model would."""

from kvspill.cache.cache import Cache
from kvspill.records import HitType, Outcome, PlannedOp, Purpose, Request, Verb
from kvspill.serving.io_models import InTheOpen, IoModel, IoOptions, Service

_DECODE = (Purpose.DECODE, HitType.USER)


class DecodeNodeModel(InTheOpen):
    """Reads the stored entry as often as the given model says."""

    def __init__(self, model: IoModel, options: IoOptions):
        self.stored_reads = model.stored_reads
        self._options = options

    def plan(self, request: Request) -> list[PlannedOp]:
        assert request.stored is not None, "a decode node needs entries that were stored before"
        nbytes = self._options.kv.of(request.stored.tokens)
        return [PlannedOp(Verb.READ, Purpose.DECODE, request.stored.key, nbytes, self.stored_reads(request))]

    async def serve(self, service: Service, cache: Cache) -> None:
        """Follow the plan to its end; a read that fails on the way fails the request (S13)."""
        stored = service.request.stored
        assert stored is not None
        # Nothing is prefilled here: all of the context comes out of the cache.
        service.recomputed_tokens = 0
        nbytes = self._options.kv.of(stored.tokens)
        for _ in range(self.stored_reads(service.request)):
            (outcome,) = await service.decode(cache.get([stored.key], [_DECODE]))
            if outcome is Outcome.HIT:
                service.read_bytes += nbytes
            elif outcome is Outcome.ERROR:
                service.fail("decode read")
            else:
                service.fail("the stored entry is gone")
                await service.decode(cache.put([stored.key], nbytes, Purpose.PREFILL, tokens=stored.tokens))
