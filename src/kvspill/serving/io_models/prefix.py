"""What engines do: load the longest resident prefix once, recompute the rest, write new blocks behind."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kvspill.cache.cache import Cache
from kvspill.cache.seen import SeenKeys
from kvspill.cache.tier import Entry, State
from kvspill.plugins import IN_BLOCKS, Plugin
from kvspill.records import Outcome, PlannedOp, Purpose, Request, Tier, Verb
from kvspill.serving.chains import Chain, chain_of
from kvspill.serving.ends import Ends
from kvspill.serving.io_models import IoOptions, Service
from kvspill.serving.io_models.whole_entry import read_or_rebuild
from kvspill.serving.write_behind import Reservation, WriteBehind

_ROUNDS_MAX = 64
"""How often a request waits for blocks on their way before it takes what is there."""


@dataclass(slots=True)
class BlockCounts:
    """Blocks since the start of the load, warm-up included."""

    asked: int = 0
    loaded: int = 0
    load_errors: int = 0
    below_threshold: int = 0
    """Resident, but too few to be worth loading."""
    not_admitted: int = 0
    """New, but not yet seen often enough to be written."""
    waits: int = 0
    """Times that a request waited for a block on its way."""


class PrefixModel:
    """Blocks under chained keys; decoding touches no storage."""

    def __init__(self, options: IoOptions):
        self._options = options
        self._writer: WriteBehind | None = None
        self._seen = SeenKeys(options.admit_seen_max) if options.admit_uses > 1 else None
        self._ends = Ends(options.kv)
        self.counts = BlockCounts()

    def plan(self, request: Request) -> list[PlannedOp]:
        chain = chain_of(request, self._options.block_tokens)
        nbytes = self._options.kv.block(chain.block_tokens)
        ops = [
            PlannedOp(Verb.READ, purpose, key, nbytes)
            for key, (purpose, _hit_type) in zip(chain.keys, chain.kinds(), strict=True)
        ]
        ops += [
            PlannedOp(Verb.READ, Purpose.RAG, chunk.key, self._options.kv.of(chunk.tokens))
            for chunk in request.chunks
        ]
        return ops

    async def serve(self, service: Service, cache: Cache) -> None:
        writer = self._writer
        if writer is None:
            writer = self._writer = WriteBehind(cache, service.clock_ns, self._options.write_behind)
        request = service.request
        started_ns = service.clock_ns()
        for chunk in request.chunks:
            # A retrieved chunk is an entry of its own, wherever it stands in the context.
            kind = Purpose.RAG, chunk.hit_type
            await read_or_rebuild(service, cache, self._options.kv, chunk.key, chunk.tokens, kind)
        chain = chain_of(request, self._options.block_tokens)
        resident = await service.prefill(self._match(cache, writer, chain))
        entries, end = self._ends.usable(cache, chain, resident)
        if len(entries) * chain.block_tokens < self._options.prefetch_min_tokens:
            self.counts.below_threshold += len(entries)
            entries, end = [], None
        # A prefill node skips what is there already, but reads none of it.
        loads = bool(entries) and not self._options.prefill_only
        service.only_prefills = self._options.prefill_only
        new = [self._announce(service, cache, writer, chain, len(entries))]
        new += self._ends.announce(cache, writer, chain, len(resident), len(entries))
        try:
            loaded = await self._load(service, cache, writer, chain, entries, end) if loads else 0
            service.load_ns = service.clock_ns() - started_ns
            self._account(service, cache, chain, len(entries), loaded)
            for reservation in new:
                await writer.submit(reservation)
        finally:
            for reservation in new:
                writer.abandon(reservation)

    def _account(self, service: Service, cache: Cache, chain: Chain, matched: int, loaded: int) -> None:
        cache.missed(chain.kinds()[matched:])
        self.counts.asked += len(chain.keys)
        service.loaded_tokens = chain.tokens_of(loaded)
        service.recomputed_tokens = chain.context_tokens - service.loaded_tokens
        shared_tokens = min(loaded, chain.shared) * chain.block_tokens
        service.prefix_hit_bytes = self._options.kv.block(shared_tokens)

    def stored_reads(self, _request: Request) -> int:
        return 1

    async def settle(self) -> None:
        if self._writer is not None:
            await self._writer.settle()

    def facts(self) -> dict[str, int]:
        """What the model counted beside the recorder's rows."""
        writes = {} if self._writer is None else asdict(self._writer.counts)
        counts = {f"blocks_{name}": value for name, value in (asdict(self.counts) | writes).items()}
        return counts | ({"ends_modelled": True} if self._options.kv.has_end else {})

    async def _match(self, cache: Cache, writer: WriteBehind, chain: Chain) -> list[Entry]:
        """The longest resident prefix. What is on its way is waited for, with nothing pinned (C4)."""
        for _round in range(_ROUNDS_MAX):
            entries, last_on_its_way = _leading(cache, writer, chain.keys)
            if last_on_its_way is None:
                last_on_its_way = self._ends.on_its_way(cache, writer, chain, len(entries))
            if last_on_its_way is None:
                return entries
            self.counts.waits += 1
            await writer.over(last_on_its_way)
            entry = cache.find(last_on_its_way)
            if entry is not None:
                await cache.settled(entry)
        return _leading(cache, writer, chain.keys)[0]

    async def _load(
        self,
        service: Service,
        cache: Cache,
        writer: WriteBehind,
        chain: Chain,
        entries: list[Entry],
        end: Entry | None,
    ) -> int:
        """Load the matched blocks, each once, and their end; returns how many blocks can be used."""
        kinds = chain.kinds()[: len(entries)]
        ends = [] if end is None else [end]
        below = [entry.ref.key for entry in entries if entry.tier.name is Tier.STORAGE]
        ends_below = [entry.ref.key for entry in ends if entry.tier.name is Tier.STORAGE]
        answers = await service.prefill(cache.load([*entries, *ends], [*kinds, *kinds[-1:] * len(ends)]))
        outcomes, end_outcomes = answers[: len(entries)], answers[len(entries) :]
        # A block that the store has dropped is a miss: it is computed again, and nothing failed.
        loaded, errors = outcomes.count(Outcome.HIT), outcomes.count(Outcome.ERROR)
        broken = any(outcome is not Outcome.HIT for outcome in end_outcomes)
        self.counts.loaded += loaded
        self.counts.load_errors += errors
        block_bytes = self._options.kv.block(chain.block_tokens)
        service.reuse(loaded * block_bytes)
        service.read_bytes += 0 if broken else sum(entry.ref.nbytes for entry in ends)
        if errors or Outcome.ERROR in end_outcomes:
            service.fail("block read")
        writer.promote(below)
        writer.promote(ends_below)
        if broken:
            return 0
        # A block is of use only behind all those before it.
        return next((at for at, outcome in enumerate(outcomes) if outcome is not Outcome.HIT), len(outcomes))

    def _announce(
        self, service: Service, cache: Cache, writer: WriteBehind, chain: Chain, matched: int
    ) -> Reservation:
        """Say which new blocks this request will make; those that exist or are on their way are not new."""
        keys, parents = chain.keys, chain.parents()
        new = [
            place
            for place in range(matched, len(keys))
            if cache.find(keys[place]) is None and not writer.pending(keys[place])
        ]
        if self._seen is not None:
            admitted = [place for place in new if self._seen.note(keys[place]) >= self._options.admit_uses]
            self.counts.not_admitted += len(new) - len(admitted)
            new = admitted
        nbytes = self._options.kv.block(chain.block_tokens)
        return writer.reserve(
            [keys[place] for place in new],
            [parents[place] for place in new],
            nbytes,
            chain.block_tokens,
            service.fail,
        )


def _leading(cache: Cache, writer: WriteBehind, keys: Sequence[str]) -> tuple[list[Entry], str | None]:
    """The resident blocks that the chain begins with, and the last of those on their way behind them."""
    entries: list[Entry] = []
    last_on_its_way: str | None = None
    for key in keys:
        entry = cache.find(key)
        if entry is not None and entry.state is State.READY:
            if last_on_its_way is None:
                entries.append(entry)
        elif entry is not None or writer.pending(key):
            last_on_its_way = key
        else:
            break
    return entries, last_on_its_way


PLUGIN = Plugin(
    name="prefix",
    help="loads the longest resident prefix of blocks once and writes new blocks, as engines do",
    make=PrefixModel,
    can=frozenset({IN_BLOCKS}),
)
