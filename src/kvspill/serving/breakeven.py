"""Break-even: loading blocks against recomputing their tokens, for one request and for the whole load."""

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kvspill.models.groups import KvSize
from kvspill.records import GIB, NS_PER_SEC, RequestRecord

if TYPE_CHECKING:
    Times = array[int]

LOADS_MAX = 1_000_000
"""Loads whose times are kept, to know which of them overlapped."""


@dataclass(slots=True)
class BreakEven:
    """Sums over the requests that loaded something. The time to recompute is modelled, never measured.

    A load that others overlap takes longer, a recomputation that has a GPU of its own does not. So like is
    compared with like: loads that no other overlapped with one GPU, and all of them with the GPUs that the
    same tokens would keep busy in the same time.
    """

    kv: KvSize
    recompute_ns_per_token: float
    recompute_source: str = ""
    loads: int = 0
    paying: int = 0
    """Loads that were faster than recomputing."""
    loaded_tokens: int = 0
    loaded_bytes: int = 0
    """KV of the prefixes that were loaded."""
    load_ns: int = 0
    recomputed_tokens: int = 0
    first_ns: int | None = None
    last_ns: int = 0
    times: "Times" = field(default_factory=lambda: array("q"))
    """Of each load: when it began and ended, and its tokens."""

    def add(self, record: RequestRecord) -> None:
        self.recomputed_tokens += record.recomputed_tokens or 0
        began_ns = record.started_ns
        self.first_ns = began_ns if self.first_ns is None else min(self.first_ns, began_ns)
        self.last_ns = max(self.last_ns, record.finished_ns)
        if record.loaded_tokens == 0:
            return
        self.loads += 1
        self.loaded_tokens += record.loaded_tokens
        self.loaded_bytes += self.kv.of(record.loaded_tokens)
        self.load_ns += record.load_ns
        self.paying += record.load_ns < record.loaded_tokens * self.recompute_ns_per_token
        if len(self.times) < 3 * LOADS_MAX:
            self.times.extend((began_ns, began_ns + record.load_ns, record.loaded_tokens))

    @property
    def net_gpu_seconds_saved(self) -> float:
        """As if each request had a GPU of its own that waits for its load, however many load at once."""
        return (self.loaded_tokens * self.recompute_ns_per_token - self.load_ns) / NS_PER_SEC

    @property
    def break_even_gib_per_sec(self) -> float:
        """The speed of a load below which recomputing is faster, waits and latency counted as load."""
        loaded = self.loaded_tokens
        bytes_per_token = self.loaded_bytes / loaded if loaded else self.kv.bytes_per_token
        return bytes_per_token / self.recompute_ns_per_token * NS_PER_SEC / GIB

    @property
    def load_gib_per_sec(self) -> float | None:
        """The speed at which requests saw their blocks arrive."""
        if self.load_ns == 0:
            return None
        return self.loaded_bytes / self.load_ns * NS_PER_SEC / GIB

    def facts(self) -> dict[str, Any]:
        """For the result."""
        speed = self.load_gib_per_sec
        span = (self.last_ns - (self.first_ns or 0)) / NS_PER_SEC
        avoided = self.loaded_tokens * self.recompute_ns_per_token / NS_PER_SEC
        return {
            "recompute_us_per_token": self.recompute_ns_per_token / 1000,
            "recompute_source": self.recompute_source,
            "requests_that_loaded": self.loads,
            "requests_where_loading_paid": self.paying,
            "loaded_tokens": self.loaded_tokens,
            "recomputed_tokens": self.recomputed_tokens,
            "load_seconds": self.load_ns / NS_PER_SEC,
            "recompute_seconds_avoided": avoided,
            "net_gpu_seconds_saved": self.net_gpu_seconds_saved,
            "load_gib_per_sec": speed,
            "break_even_gib_per_sec": self.break_even_gib_per_sec,
            "storage_may_be_slower_by": None if speed is None else speed / self.break_even_gib_per_sec,
            "span_seconds": span,
            "recompute_gpus": avoided / span if span > 0 else None,
            "loads_at_once": self.load_ns / NS_PER_SEC / span if span > 0 else None,
            **self._alone(),
        }

    def _alone(self) -> dict[str, float | int]:
        """The loads that no other load overlapped, from the first to the last moment."""
        rows = np.array(self.times, dtype=np.int64).reshape(-1, 3)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        began_ns, ended_ns, tokens = rows.T
        latest_ns = np.maximum.accumulate(ended_ns) if len(rows) else ended_ns
        alone = np.ones(len(rows), dtype=bool)
        alone[1:] &= began_ns[1:] >= latest_ns[:-1]
        alone[:-1] &= began_ns[1:] >= ended_ns[:-1]
        load_ns = (ended_ns - began_ns)[alone]
        recompute_ns = tokens[alone] * self.recompute_ns_per_token
        return {
            "loads_alone": int(alone.sum()),
            "loads_alone_paid": int((load_ns < recompute_ns).sum()),
            "loads_alone_seconds": float(load_ns.sum()) / NS_PER_SEC,
            "loads_alone_recompute_seconds": float(recompute_ns.sum()) / NS_PER_SEC,
        }
