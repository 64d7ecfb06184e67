"""The small dataclasses that every layer speaks: requests, operations, lookups and who observes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

GIB = 1 << 30
UNLIMITED_BYTES = 1 << 60
"""A capacity that no load reaches, where none is given."""
SERVERS_MAX = 500
"""Requests served at once where --servers does not say otherwise (L1)."""
MIB = 1 << 20
BLOCK_BYTES = 4096
"""Entries are stored, and stamped, in whole blocks of this size (C7)."""
NS_PER_SEC = 1_000_000_000
NS_PER_MS = 1_000_000


def block_padded(nbytes: int) -> int:
    """What so many bytes take in whole blocks."""
    return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES


class Tier(StrEnum):
    """A level of the memory hierarchy, fastest first."""

    GPU = "gpu"
    CPU = "cpu"
    STORAGE = "storage"


class QoS(IntEnum):
    """A user's service class; the smaller value is served first."""

    INTERACTIVE = 0
    RESPONSIVE = 1
    BATCH = 2


class Verb(StrEnum):
    """What a backend is asked to do."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"


CANCELLED = "cancelled"
"""The error of an operation that the end of the run cut off: no fault, and no lookup or eviction either."""
DROPPED = "dropped"
"""The error of a read whose object the store itself gave up to make room: a miss that the store caused."""


class Purpose(StrEnum):
    """Why a cache operation happens."""

    PREFILL = "prefill"
    DECODE = "decode"
    HISTORY = "history"
    PROMPT = "prompt"
    RAG = "rag"
    DEMOTION = "demotion"
    EVICTION = "eviction"
    PROMOTION = "promotion"
    """A copy in DRAM of a block that was read from storage."""
    INGEST = "ingest"


REBUILDS = (Purpose.HISTORY, Purpose.PROMPT, Purpose.RAG)
"""What is written for these had been evicted."""


class Outcome(StrEnum):
    """How a lookup ended. An ERROR is neither a hit nor a miss (S5)."""

    HIT = "hit"
    MISS = "miss"
    ERROR = "error"


class HitType(StrEnum):
    """The seeds' categories of lookups."""

    SYSTEM = "system"
    COMMON = "common"
    MULTI_TURN = "multi_turn"
    USER = "user"


LookupKind = tuple[Purpose, HitType]
"""Why an entry is looked up, and what it counts as where it is found."""


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A prompt that many requests begin with; all of them share its key."""

    key: str
    tokens: int
    hit_type: HitType = HitType.SYSTEM


class Request(NamedTuple):
    """One turn of one conversation: what a user asks for and when it means to ask."""

    user: int
    conversation: int
    turn: int
    qos: QoS
    intended_ns: int
    """Intended time since the start of the load (open arrivals)."""
    think_ns: int
    """Pause between the answer to the turn before and this request (closed arrivals)."""
    context_tokens: int
    generate_tokens: int
    history_tokens: Sequence[int] = ()
    """Context tokens of the turns before, oldest first."""
    prefix: SharedPrefix | None = None
    persona: str = ""
    chunks: tuple[SharedPrefix, ...] = ()
    """Retrieved document chunks whose stored KV this request reads (RAG)."""
    blocks: tuple[str, ...] = ()
    """Chained block hashes of the whole context, first block first, where a trace lists them."""
    block_tokens: int = 0
    """Tokens per listed block."""
    history_answers: Sequence[int] = ()
    """Generated tokens of the turns before, oldest first."""
    opening: SharedPrefix | None = None
    """The shared prompt that the conversation began with: where equal contexts begin equally."""
    stored: SharedPrefix | None = None
    """The entry that a decode node reads, stored before the load; such a request does nothing else."""
    history_shared: tuple[int, ...] = ()
    """Tokens of the shared prompts that the turns before began with, oldest first; empty where none did."""
    block_fill: tuple[int, ...] = ()
    """Tokens in each listed block, where a trace says so; else all are full but the last."""

    @property
    def key(self) -> str:
        """The key of this turn's KV entry."""
        return entry_key(self.user, self.conversation, self.turn)


def entry_key(user: int, conversation: int, turn: int) -> str:
    """The key of a turn's KV entry."""
    return f"u{user}_c{conversation}_t{turn}"


class PlannedOp(NamedTuple):
    """An operation that a request intends before anything is known about the cache (S9)."""

    verb: Verb
    purpose: Purpose
    key: str
    nbytes: int
    repeat: int = 1


Piece = tuple[int, int, int]
"""One system call of a transfer: start_ns, end_ns, nbytes."""


@dataclass(slots=True)
class Completion:
    """How one item of a backend's batch ended. Times are of the world's clock.

    Items that went the same way may share one: a change makes another one.
    """

    submitted_ns: int
    started_ns: int
    """When a thread (or the device model) took it up; before that it was queued."""
    finished_ns: int
    device_ns: int
    """Union of the pieces' time inside system calls, or the model's service time (S2)."""
    pieces: Sequence[Piece] = ()
    error: str | None = None
    """None, or the kind of failure: an errno name such as ENOSPC, "short_read", "torn", "cancelled"…"""
    detail: str = ""
    sync_ns: int = 0
    """The part of device_ns that making a write durable took."""
    first_byte_ns: int = 0
    """The part of device_ns until a store's first answer to a read began; 0 where nobody tells."""
    keeps_room: bool = False
    """A write that failed and whose room could not be taken back: it stays used (C7)."""

    @property
    def total_ns(self) -> int:
        return self.finished_ns - self.submitted_ns

    @property
    def queue_ns(self) -> int:
        return self.started_ns - self.submitted_ns

    @property
    def host_ns(self) -> int:
        """What was spent neither inside the device nor waiting to be taken up (S2)."""
        return max(0, self.total_ns - self.device_ns - self.queue_ns)


class OpRecord(NamedTuple):
    """One operation on one tier, as the cache issued it, or several of a batch that went the same way."""

    tier: Tier
    verb: Verb
    purpose: Purpose
    key: str
    nbytes: int
    """Logical bytes: what the KV metrics count (C7)."""
    stored_bytes: int
    """Bytes as stored, padded: what the device moves."""
    completion: Completion
    generation: int = 0
    """Which version of the key: each put makes a new one."""
    twins: tuple[tuple[str, int], ...] = ()
    """Key and generation of the others of its batch with the same size and the same completion."""
    tokens: int = 0
    """Context tokens that the entry holds; none where it only belongs to the end of others."""

    @property
    def times(self) -> int:
        return 1 + len(self.twins)

    def each(self) -> "Iterator[OpRecord]":
        yield self._replace(twins=())
        for key, generation in self.twins:
            yield self._replace(key=key, generation=generation, twins=())


class Lookup(NamedTuple):
    """One question to the cache: was the entry there?"""

    at_ns: int
    purpose: Purpose
    hit_type: HitType
    outcome: Outcome
    tier: Tier | None
    times: int = 1


class Eviction(NamedTuple):
    """An entry left a tier: demoted to one below, or dropped (below is None); or several alike at once."""

    at_ns: int
    tier: Tier
    below: Tier | None
    nbytes: int
    key: str = ""
    generation: int = 0
    twins: tuple[tuple[str, int], ...] = ()
    """Key and generation of the others of its batch with the same size and the same way."""

    @property
    def times(self) -> int:
        return 1 + len(self.twins)

    def each(self) -> "Iterator[Eviction]":
        yield self._replace(twins=())
        for key, generation in self.twins:
            yield self._replace(key=key, generation=generation, twins=())


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One served request (S1). Times are of the world's clock."""

    request: Request
    intended_ns: int
    started_ns: int
    finished_ns: int
    storage_ns: int
    """Union of the time inside cache calls."""
    generation_ns: int
    prefill_ns: int
    decode_ns: int
    generated_tokens: int
    """Tokens of the answer; none on a prefill node."""
    failure: str | None = None
    load_ns: int = 0
    """Time until the blocks that were found had been loaded; waits included. 0 without blocks."""
    loaded_tokens: int = 0
    recomputed_tokens: int | None = None
    """Context tokens that the cache could not give; None where the I/O model does not say."""
    read_bytes: int = 0
    """What was read for it from any tier."""
    reused_bytes: int = 0
    """The part of that which was in the cache before: no re-reads of what it wrote itself."""
    ttft_ns: int | None = None
    """From the intended time to the end of the first decode read, and the prefill (S12); None: no token."""
    prefill_compute_ns: int = 0
    """The part of generation_ns before the first token: computing what the cache could not give."""
    waited_generation_ns: int = 0
    """How long, while this request waited, the turn before it was generating its answer (S11)."""

    @property
    def tpot_ns(self) -> int | None:
        """Time per generated token: decode storage and generation (S12); None without tokens."""
        if not self.generated_tokens:
            return None
        return (self.decode_ns + self.generation_ns - self.prefill_compute_ns) // self.generated_tokens

    @property
    def added_ns(self) -> int:
        """What queue and storage add: end-to-end without generation, its own and its predecessor's (S11)."""
        return max(0, self.end_to_end_ns - self.generation_ns - self.waited_generation_ns)

    @property
    def storage_ttft_ns(self) -> int:
        """What storage adds to the time to the first token: queue wait and load."""
        return self.queue_ns + self.load_ns

    @property
    def queue_ns(self) -> int:
        return self.started_ns - self.intended_ns

    @property
    def end_to_end_ns(self) -> int:
        return self.finished_ns - self.intended_ns

    @property
    def other_ns(self) -> int:
        return self.end_to_end_ns - self.queue_ns - self.storage_ns - self.generation_ns


class Observer:
    """Is told what happens: the recorder in a run, a list in a test. Each takes up what it needs."""

    def op(self, record: OpRecord) -> None: ...

    def lookup(self, lookup: Lookup) -> None: ...

    def eviction(self, eviction: Eviction) -> None: ...

    def request(self, record: RequestRecord) -> None: ...

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        """A request was inside a cache call for so long, whether it was served to its end or not."""

    def room_wait(self, from_ns: int, to_ns: int, writes: int) -> None:
        """A put of so many writes stood still, because all that the last tier kept was in use (C4)."""
