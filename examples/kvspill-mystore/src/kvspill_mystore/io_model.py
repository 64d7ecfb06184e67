"""The I/O model read-twice: each turn is one entry, which is written and then read twice."""

from kvspill.cache.cache import Cache
from kvspill.plugins import Plugin
from kvspill.records import HitType, Outcome, PlannedOp, Purpose, Request, Verb
from kvspill.serving.io_models import InTheOpen, IoOptions, Service

READS = 2


class ReadTwice(InTheOpen):
    def __init__(self, options: IoOptions):
        self._kv = options.kv
        self._reads = 0 if options.prefill_only else READS

    def plan(self, request: Request) -> list[PlannedOp]:
        nbytes = self._kv.of(request.context_tokens)
        ops = [PlannedOp(Verb.WRITE, Purpose.PREFILL, request.key, nbytes)]
        if self._reads:
            ops.append(PlannedOp(Verb.READ, Purpose.DECODE, request.key, nbytes, self._reads))
        return ops

    def stored_reads(self, request: Request) -> int:
        del request
        return READS

    async def serve(self, service: Service, cache: Cache) -> None:
        key, tokens = service.request.key, service.request.context_tokens
        nbytes = self._kv.of(tokens)
        service.only_prefills = self._reads == 0
        put = await service.prefill(cache.put([key], nbytes, Purpose.PREFILL, tokens=tokens, pin=True))
        if put.failure is not None:
            service.fail(f"write: {put.failure}")
            return
        try:
            for _ in range(self._reads):
                (outcome,) = await service.decode(cache.load(put.entries, [(Purpose.DECODE, HitType.USER)]))
                if outcome is Outcome.HIT:
                    service.read_bytes += nbytes
                elif outcome is Outcome.ERROR:
                    service.fail("decode read")
        finally:
            cache.release(put.entries)


PLUGIN = Plugin("read-twice", "writes each turn's entry and reads it twice", ReadTwice)
