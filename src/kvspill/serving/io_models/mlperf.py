"""The seeds' I/O model: read the history, write this turn's entry, read it again for every decode batch."""

from kvspill.cache.cache import Cache
from kvspill.records import HitType, Outcome, PlannedOp, Purpose, Request, Verb, entry_key
from kvspill.serving.io_models import InTheOpen, IoOptions, Service


class MlperfModel(InTheOpen):
    """Each turn is one entry; decoding reads the whole entry 1 + ceil(generated / batch) times."""

    def __init__(self, options: IoOptions):
        self._options = options

    def plan(self, request: Request) -> list[PlannedOp]:
        per_token = self._options.bytes_per_token
        ops = []
        if request.prefix is not None:
            ops.append(
                PlannedOp(Verb.READ, Purpose.PROMPT, request.prefix.key, request.prefix.tokens * per_token)
            )
        ops += [
            PlannedOp(Verb.READ, Purpose.RAG, chunk.key, chunk.tokens * per_token) for chunk in request.chunks
        ]
        ops += [PlannedOp(Verb.READ, Purpose.HISTORY, key, nbytes) for key, nbytes in self._history(request)]
        nbytes = request.context_tokens * per_token
        ops.append(PlannedOp(Verb.WRITE, Purpose.PREFILL, request.key, nbytes))
        reads = self._decode_reads(request)
        if reads:
            ops.append(PlannedOp(Verb.READ, Purpose.DECODE, request.key, nbytes, reads))
        return ops

    async def serve(self, service: Service, cache: Cache) -> None:
        """Follow the plan to its end even where a read fails, so that a fault never saves work."""
        request = service.request
        per_token = self._options.bytes_per_token
        if request.prefix is not None:
            nbytes = request.prefix.tokens * per_token
            hit = await self._read_or_rebuild(
                service, cache, request.prefix.key, nbytes, Purpose.PROMPT, request.prefix.hit_type
            )
            service.prefix_hit_bytes = nbytes if hit else 0
        for chunk in request.chunks:
            await self._read_or_rebuild(
                service, cache, chunk.key, chunk.tokens * per_token, Purpose.RAG, chunk.hit_type
            )
        for key, nbytes in self._history(request):
            await self._read_or_rebuild(service, cache, key, nbytes, Purpose.HISTORY, HitType.MULTI_TURN)
        nbytes = request.context_tokens * per_token
        put = await service.prefill(cache.put(request.key, nbytes, Purpose.PREFILL, pin=True))
        reads = self._decode_reads(request)
        service.only_prefills = reads == 0
        if put.entry is None:
            service.fail(f"write: {put.failure}")
        while put.entry is None and reads:
            # The request has failed (C3). It still moves the bytes that it meant to read, by writing
            # again: otherwise a fault would spare the device and raise the others' score.
            put = await service.decode(cache.put(request.key, nbytes, Purpose.PREFILL, pin=True))
            reads -= 1
        if put.entry is None:
            return
        try:
            for _ in range(reads):
                outcome = await service.decode(cache.read_pinned(put.entry, Purpose.DECODE, HitType.USER))
                if outcome is not Outcome.HIT:
                    service.fail("decode read")
        finally:
            cache.release(put.entry)

    async def _read_or_rebuild(
        self, service: Service, cache: Cache, key: str, nbytes: int, purpose: Purpose, hit_type: HitType
    ) -> bool:
        """Read an entry of earlier; one that was evicted is written again (C3). True for a hit."""
        outcome = await service.prefill(cache.get(key, purpose, hit_type))
        if outcome is Outcome.ERROR:
            service.fail(f"{purpose} read")
        elif outcome is Outcome.MISS:
            put = await service.prefill(cache.put(key, nbytes, purpose))
            if put.entry is None:
                service.fail(f"{purpose} rebuild: {put.failure}")
        return outcome is Outcome.HIT

    def _history(self, request: Request) -> list[tuple[str, int]]:
        turns = range(request.turn)
        return [
            (
                entry_key(request.user, request.conversation, turn),
                request.history_tokens[turn] * self._options.bytes_per_token,
            )
            for turn in (turns if self._options.whole_history else turns[-1:])
        ]

    def _decode_reads(self, request: Request) -> int:
        if request.context_tokens >= self._options.prefill_only_tokens:
            return 0
        return 1 + -(-request.generate_tokens // self._options.decode_batch_size)
