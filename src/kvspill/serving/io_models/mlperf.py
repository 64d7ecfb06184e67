"""The seeds' I/O model: read the history, write this turn's entry, read it again for every decode batch."""

from kvspill.cache.cache import Cache
from kvspill.plugins import Plugin
from kvspill.records import HitType, PlannedOp, Purpose, Request, Verb, entry_key
from kvspill.serving.io_models import InTheOpen, IoOptions, Service
from kvspill.serving.io_models.whole_entry import read_or_rebuild, serve_own

# Bound once, for an Enum looks its members up anew each time, and every arrival is planned.
_READ, _WRITE = Verb.READ, Verb.WRITE
_PREFILL, _DECODE, _PROMPT, _RAG, _HISTORY = (
    Purpose.PREFILL,
    Purpose.DECODE,
    Purpose.PROMPT,
    Purpose.RAG,
    Purpose.HISTORY,
)
_MULTI_TURN = HitType.MULTI_TURN

_Earlier = tuple[str, int, Purpose, HitType]
"""An entry of earlier that a request reads: its key, its tokens, and what it counts as."""


class MlperfModel(InTheOpen):
    """Each turn is one entry; decoding reads the whole entry 1 + ceil(generated / batch) times.

    A shared prompt is an entry of its own, so a turn's entry holds the context without it (S17).
    """

    def __init__(self, options: IoOptions):
        self._options = options
        self._kv = options.kv

    def plan(self, request: Request) -> list[PlannedOp]:
        ops = [
            PlannedOp(_READ, purpose, key, self._kv.of(tokens))
            for key, tokens, purpose, _hit_type in self._earlier(request)
        ]
        key, nbytes = request.key, self._kv.of(self._own_tokens(request))
        ops.append(PlannedOp(_WRITE, _PREFILL, key, nbytes))
        reads = self._decode_reads(request)
        if reads:
            ops.append(PlannedOp(_READ, _DECODE, key, nbytes, reads))
        return ops

    async def serve(self, service: Service, cache: Cache) -> None:
        """Follow the plan to its end; a read that fails on the way fails the request (S13)."""
        request = service.request
        for key, tokens, purpose, hit_type in self._earlier(request):
            hit = await read_or_rebuild(service, cache, self._kv, key, tokens, (purpose, hit_type))
            if hit and purpose is Purpose.PROMPT:
                service.prefix_hit_bytes = self._kv.of(tokens)
        # S17: one that only prefills because of its length still generates its tokens.
        service.only_prefills = self._options.prefill_only
        tokens, reads = self._own_tokens(request), self._decode_reads(request)
        await serve_own(service, cache, self._kv, tokens, reads, cache.release)

    def _earlier(self, request: Request) -> list[_Earlier]:
        """What a request reads before it writes: its prompt, what it retrieves, the turns before."""
        options = self._options
        if options.prefill_only:
            return []
        reads: list[_Earlier] = []
        prompt = request.prefix
        if prompt is not None:
            reads.append((prompt.key, prompt.tokens, _PROMPT, prompt.hit_type))
        for chunk in request.chunks:
            reads.append((chunk.key, chunk.tokens, _RAG, chunk.hit_type))
        oldest = 0 if options.whole_history else max(0, request.turn - 1)
        for turn in range(oldest, request.turn):
            key = entry_key(request.user, request.conversation, turn)
            reads.append((key, _history_tokens(request, turn), _HISTORY, _MULTI_TURN))
        return reads

    def _own_tokens(self, request: Request) -> int:
        """What this turn's entry holds; a prefill node has no entries of prompts."""
        shared = None if self._options.prefill_only else request.prefix
        return _without(request.context_tokens, 0 if shared is None else shared.tokens)

    def stored_reads(self, request: Request) -> int:
        return 1 + -(-request.generate_tokens // self._options.decode_batch_size)

    def _decode_reads(self, request: Request) -> int:
        options = self._options
        if options.prefill_only or request.context_tokens >= options.prefill_only_tokens:
            return 0
        return self.stored_reads(request)


def _history_tokens(request: Request, turn: int) -> int:
    """What the entry of an earlier turn holds."""
    shared = request.history_shared[turn] if request.history_shared else 0
    return _without(request.history_tokens[turn], shared)


def _without(tokens: int, shared: int) -> int:
    """A context without its prompt; one that is no longer than the prompt keeps a token."""
    return max(1, tokens - shared)


PLUGIN = Plugin(
    name="mlperf",
    help="reads history, writes the turn's entry, reads it again for every decode batch",
    make=MlperfModel,
)
