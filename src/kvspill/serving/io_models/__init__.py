"""I/O models: what a request does to the cache. One file each with its PLUGIN; others come by entry point."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from kvspill.cache.cache import Cache
from kvspill.cache.options import Put
from kvspill.models.groups import KvSize
from kvspill.plugins import Kind, find_plugins
from kvspill.records import PlannedOp, Request
from kvspill.serving.write_behind import WriteBehindOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IoOptions:
    """What the `make` of an I/O model is given: what models need to know of the configuration."""

    kv: KvSize
    """Bytes of a context's KV."""
    whole_history: bool = False
    decode_batch_size: int = 32
    prefill_only_tokens: int = 10_000
    prefill_only: bool = False
    """A prefill node: requests write and read nothing."""
    decode_only: bool = False
    """A decode node: requests read what was stored before the load and write nothing."""
    block_tokens: int = 256
    """Tokens per block where a trace does not list its own blocks."""
    prefetch_min_tokens: int = 0
    """Fewer resident tokens than this are recomputed instead of loaded."""
    admit_uses: int = 1
    """A block is written when it is seen for this time."""
    admit_seen_max: int = 1_000_000
    """Blocks whose uses are remembered for that rule."""
    write_behind: WriteBehindOptions = field(default_factory=WriteBehindOptions)
    stream_tokens_per_read: int = 1
    """Generated tokens per read of the whole KV in the stream model."""
    own: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The model's own options by name."""


@dataclass(slots=True)
class Service:
    """The account of one request being served: time inside cache calls, and what failed."""

    request: Request
    clock_ns: Callable[[], int]
    halted: Callable[[], bool]
    """True once the run is over: nothing more is begun."""
    on_call: Callable[[int, int], None]
    """Told from when to when a cache call took, also one that the end of the run cut off."""
    prefill_ns: int = 0
    decode_ns: int = 0
    first_decode_ns: int | None = None
    """When the first decode read ended; None where decoding touches no storage."""
    failure: str | None = None
    read_bytes: int = 0
    """What was read for it from any tier."""
    reused_bytes: int = 0
    """The part of that which others (or its own earlier turns) had left in the cache."""
    prefix_hit_bytes: int = 0
    only_prefills: bool = False
    """True on a prefill node: the request generates nothing here."""
    load_ns: int = 0
    loaded_tokens: int = 0
    recomputed_tokens: int | None = None
    """Context tokens that the cache could not give; None where the model does not say."""

    @property
    def storage_ns(self) -> int:
        return self.prefill_ns + self.decode_ns

    async def prefill(self, call: Awaitable[T]) -> T:
        """Await a cache call before the first token; its whole wall time is storage I/O (S1)."""
        started_ns = self.clock_ns()
        try:
            result = await call
        finally:
            self.prefill_ns += self._over(started_ns)
        self._go_on(result)
        return result

    async def decode(self, call: Awaitable[T]) -> T:
        """Await a cache call of the decode phase."""
        started_ns = self.clock_ns()
        try:
            result = await call
        finally:
            self.decode_ns += self._over(started_ns)
            if self.first_decode_ns is None:
                self.first_decode_ns = self.clock_ns()
        self._go_on(result)
        return result

    def _over(self, started_ns: int) -> int:
        """A cache call has ended: tells it, and returns how long it took."""
        ended_ns = self.clock_ns()
        self.on_call(started_ns, ended_ns)
        return ended_ns - started_ns

    def _go_on(self, result: object) -> None:
        if self.halted():
            raise asyncio.CancelledError
        if isinstance(result, Put) and result.demotion_error is not None:
            # Of whichever model: who waited for a demotion has met its fault (C6, S13), and goes on reading.
            self.fail(f"demotion: {result.demotion_error}")

    def reuse(self, nbytes: int) -> None:
        """What was there already has been read."""
        self.read_bytes += nbytes
        self.reused_bytes += nbytes

    def fail(self, reason: str) -> None:
        """The first failure names the request's."""
        self.failure = self.failure or reason


class IoModel(Protocol):
    """Turns a request into cache operations."""

    def plan(self, request: Request) -> list[PlannedOp]:
        """What the request intends, before anything is known about the cache."""
        ...

    def stored_reads(self, request: Request) -> int:
        """How often a decode node reads the entry that was stored for the request before the load."""
        ...

    async def serve(self, service: Service, cache: Cache) -> None:
        """Do it."""
        ...

    async def settle(self) -> None:
        """Wait for what goes on behind the requests, where the work and not the time ends the run."""
        ...

    def facts(self) -> dict[str, int]:
        """What the model counted beside the recorder's rows."""
        ...


class InTheOpen:
    """A model that does everything while its request is served, and counts nothing of its own."""

    async def settle(self) -> None:
        """There is nothing to wait for."""

    def facts(self) -> dict[str, int]:
        return {}


def make_io_model(name: str, options: IoOptions) -> IoModel:
    """The model of that name; on a decode node what is stored is read as often as that model would."""
    model: IoModel = find_plugins(Kind.IO_MODEL).get(name, "--io-model").start(options, IoModel)
    if not options.decode_only:
        return model
    from kvspill.serving.io_models.decode_node import DecodeNodeModel

    return DecodeNodeModel(model, options)
