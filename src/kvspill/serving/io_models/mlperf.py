"""The seeds' I/O model: read the history, write this turn's entry, read it again for every decode batch."""

from kvspill.cache.cache import Cache
from kvspill.records import HitType, Outcome, PlannedOp, Purpose, Request, Verb, entry_key
from kvspill.serving.io_models import InTheOpen, IoOptions, Service
from kvspill.serving.io_models.own_entry import serve_own

_Earlier = tuple[str, int, Purpose, HitType]
"""An entry of earlier that a request reads: its key, its bytes, and what it counts as."""


class MlperfModel(InTheOpen):
    """Each turn is one entry; decoding reads the whole entry 1 + ceil(generated / batch) times."""

    def __init__(self, options: IoOptions):
        self._options = options

    def plan(self, request: Request) -> list[PlannedOp]:
        per_token = self._options.bytes_per_token
        ops = [
            PlannedOp(Verb.READ, purpose, key, nbytes)
            for key, nbytes, purpose, _hit_type in self._earlier(request)
        ]
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
        for key, nbytes, purpose, hit_type in self._earlier(request):
            hit = await self._read_or_rebuild(service, cache, key, nbytes, purpose, hit_type)
            if hit and purpose is Purpose.PROMPT:
                service.prefix_hit_bytes = nbytes
        nbytes = request.context_tokens * per_token
        reads = self._decode_reads(request)
        service.only_prefills = reads == 0
        await serve_own(service, cache, nbytes, reads, cache.release)

    async def _read_or_rebuild(
        self, service: Service, cache: Cache, key: str, nbytes: int, purpose: Purpose, hit_type: HitType
    ) -> bool:
        """Read an entry of earlier; one that was evicted is written again (C3). True for a hit."""
        outcome = await service.prefill(cache.get(key, purpose, hit_type))
        if outcome is Outcome.HIT:
            service.reuse(nbytes)
        elif outcome is Outcome.ERROR:
            service.fail(f"{purpose} read")
            await service.prefill(cache.make_up(nbytes))
        elif outcome is Outcome.MISS:
            put = await service.prefill(cache.put(key, nbytes, purpose))
            if put.entry is None:
                service.fail(f"{purpose} rebuild: {put.failure}")
                await service.prefill(cache.make_up(nbytes))
        return outcome is Outcome.HIT

    def _earlier(self, request: Request) -> list[_Earlier]:
        """What a request reads before it writes: its prompt, what it retrieves, the turns before."""
        if self._options.prefill_only:
            return []
        per_token = self._options.bytes_per_token
        reads: list[_Earlier] = []
        if request.prefix is not None:
            prompt = request.prefix
            reads.append((prompt.key, prompt.tokens * per_token, Purpose.PROMPT, prompt.hit_type))
        reads += [
            (chunk.key, chunk.tokens * per_token, Purpose.RAG, chunk.hit_type) for chunk in request.chunks
        ]
        turns = range(request.turn)
        for turn in turns if self._options.whole_history else turns[-1:]:
            key = entry_key(request.user, request.conversation, turn)
            nbytes = request.history_tokens[turn] * per_token
            reads.append((key, nbytes, Purpose.HISTORY, HitType.MULTI_TURN))
        return reads

    def _decode_reads(self, request: Request) -> int:
        if self._options.prefill_only or request.context_tokens >= self._options.prefill_only_tokens:
            return 0
        return 1 + -(-request.generate_tokens // self._options.decode_batch_size)
