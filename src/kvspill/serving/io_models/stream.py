"""Offline streaming in the manner of FlexGen: every decode step reads the whole KV from where it lives."""

from kvspill.cache.cache import Cache
from kvspill.plugins import Plugin
from kvspill.records import PlannedOp, Purpose, Request, Verb
from kvspill.serving.io_models import InTheOpen, IoOptions, Service
from kvspill.serving.io_models.whole_entry import serve_own


class StreamModel(InTheOpen):
    """A request writes its KV once, reads all of it for every step, and discards it: nothing is reused.

    The KV of the tokens generated so far stays with the GPU; what is streamed is that of the context.
    """

    def __init__(self, options: IoOptions):
        self._options = options

    def plan(self, request: Request) -> list[PlannedOp]:
        nbytes = self._options.kv.of(request.context_tokens)
        ops = [PlannedOp(Verb.WRITE, Purpose.PREFILL, request.key, nbytes)]
        reads = self._reads(request)
        if reads:
            ops.append(PlannedOp(Verb.READ, Purpose.DECODE, request.key, nbytes, reads))
        return ops

    async def serve(self, service: Service, cache: Cache) -> None:
        """Follow the plan to its end; a read that fails on the way fails the request (S13)."""
        request = service.request
        service.only_prefills = self._options.prefill_only
        kv, tokens = self._options.kv, request.context_tokens
        await serve_own(service, cache, kv, tokens, self._reads(request), cache.discard)

    def stored_reads(self, request: Request) -> int:
        return -(-request.generate_tokens // self._options.stream_tokens_per_read)

    def _reads(self, request: Request) -> int:
        return 0 if self._options.prefill_only else self.stored_reads(request)


PLUGIN = Plugin(
    name="stream",
    help="writes the context once and reads all of it for every generated token",
    make=StreamModel,
)
