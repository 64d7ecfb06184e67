"""The account of an I/O model: what it read against the least possible, its hits against their bounds."""

from dataclasses import asdict
from typing import Any

from kvspill.models.groups import KvSize
from kvspill.models.parameters import Recompute
from kvspill.records import Observer, OpRecord, Purpose, Request, RequestRecord, Tier, Verb
from kvspill.serving.bounds import Access, AccessLog, hit_bounds
from kvspill.serving.breakeven import BreakEven
from kvspill.serving.chains import chain_of
from kvspill.serving.io_models import IoModel

_KEYS_MAX = 1_000_000


class Accountant(Observer):
    """Observes a run from the start of the load on, warm-up included, request by request as they end."""

    def __init__(
        self,
        io_model: IoModel,
        kv: KvSize,
        block_tokens: int,
        capacity_bytes: int,
        recompute: Recompute,
        chained: bool,
    ):
        self._io_model = io_model
        self._kv = kv
        self._block_tokens = block_tokens
        self._capacity_bytes = capacity_bytes
        self._counting = False
        self._log = AccessLog(chained, whole=not (chained and kv.has_end))
        self._even = BreakEven(kv, recompute.us_per_token * 1000, recompute.source)
        self._in_blocks = False
        self._seen: set[str] = set()
        self._ideal_read_bytes = 0
        self._written_bytes = 0
        """What storage was given, as stored, before the load as well."""
        self._read_bytes = 0
        self._read_bytes_of_ideal = 0
        """What the requests of the ideal account read."""
        self._reused_bytes = 0
        """What the requests in the log of accesses found: never more than an unlimited cache has."""

    def begin(self) -> None:
        """The load begins: nothing before it is counted (S3)."""
        self._counting = True

    def op(self, record: OpRecord) -> None:
        if record.completion.error is not None:
            return
        if record.verb is Verb.WRITE and record.tier is Tier.STORAGE:
            self._written_bytes += record.times * record.stored_bytes
        if record.purpose is Purpose.INGEST:
            for one in record.each():
                self._log.preload(one.key, one.nbytes, one.completion.finished_ns)
        elif self._counting and record.verb is Verb.READ and record.purpose is not Purpose.DEMOTION:
            self._read_bytes += record.times * record.nbytes

    def request(self, record: RequestRecord) -> None:
        if record.failure is not None:
            return
        self._even.add(record)
        self._in_blocks |= record.recomputed_tokens is not None
        if self._log.add(self._accesses(record.request), record.started_ns):
            self._reused_bytes += record.reused_bytes
        if len(self._seen) < _KEYS_MAX:
            self._read_bytes_of_ideal += record.read_bytes
            self._ideal(record.request)

    def _accesses(self, request: Request) -> list[Access]:
        """The lookups that a plan has, without decode re-reads, and what it makes resident."""
        return [
            Access(key, nbytes, verb is Verb.READ)
            for verb, purpose, key, nbytes, _repeat in self._io_model.plan(request)
            if purpose is not Purpose.DECODE
        ]

    def _ideal(self, request: Request) -> None:
        """What the prefix model reads with a cache that never forgets."""
        chain = chain_of(request, self._block_tokens)
        found = 0
        while found < len(chain.keys) and chain.keys[found] in self._seen:
            found += 1
        self._seen.update(chain.keys[found:])
        kv = self._kv
        self._ideal_read_bytes += found * kv.block(chain.block_tokens) + kv.end(chain.tokens_of(found))

    def facts(self) -> dict[str, Any]:
        """For the result: everything about the whole load."""
        self._log.sort()
        bounds = hit_bounds(self._log, self._capacity_bytes)
        ideal = self._ideal_read_bytes
        return {
            "storage_written_bytes": self._written_bytes,
            "read_bytes": self._read_bytes,
            "read_bytes_of_ideal": self._read_bytes_of_ideal,
            "reused_bytes": self._reused_bytes,
            "least_read_bytes": ideal,
            "read_inflation": self._read_bytes_of_ideal / ideal if ideal else None,
            "byte_hit_rate": None if bounds is None else self._reused_bytes / bounds.looked_up_bytes,
            "hit_rate_bounds": None if bounds is None else asdict(bounds),
            "break_even": self._even.facts() if self._even.loads or self._in_blocks else None,
        }
