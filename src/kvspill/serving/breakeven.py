"""Break-even: whether loading blocks took less of a GPU's time than recomputing their tokens would have."""

from dataclasses import dataclass

from kvspill.models.groups import KvSize
from kvspill.records import GIB, NS_PER_SEC, RequestRecord


@dataclass(slots=True)
class BreakEven:
    """Sums over the requests that loaded something. The time to recompute is modelled, never measured."""

    kv: KvSize
    recompute_ns_per_token: float
    loads: int = 0
    paying: int = 0
    """Loads that were faster than recomputing."""
    loaded_tokens: int = 0
    loaded_bytes: int = 0
    """KV of the prefixes that were loaded."""
    load_ns: int = 0
    recomputed_tokens: int = 0

    def add(self, record: RequestRecord) -> None:
        self.recomputed_tokens += record.recomputed_tokens or 0
        if record.loaded_tokens == 0:
            return
        self.loads += 1
        self.loaded_tokens += record.loaded_tokens
        self.loaded_bytes += self.kv.of(record.loaded_tokens)
        self.load_ns += record.load_ns
        self.paying += record.load_ns < record.loaded_tokens * self.recompute_ns_per_token

    @property
    def net_gpu_seconds_saved(self) -> float:
        """A GPU waits while blocks are loaded; negative where recomputing would have been faster."""
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

    def facts(self) -> dict[str, float | int | None]:
        """For the result."""
        speed = self.load_gib_per_sec
        return {
            "recompute_us_per_token": self.recompute_ns_per_token / 1000,
            "requests_that_loaded": self.loads,
            "requests_where_loading_paid": self.paying,
            "loaded_tokens": self.loaded_tokens,
            "recomputed_tokens": self.recomputed_tokens,
            "load_seconds": self.load_ns / NS_PER_SEC,
            "recompute_seconds_avoided": self.loaded_tokens * self.recompute_ns_per_token / NS_PER_SEC,
            "net_gpu_seconds_saved": self.net_gpu_seconds_saved,
            "load_gib_per_sec": speed,
            "break_even_gib_per_sec": self.break_even_gib_per_sec,
            "storage_may_be_slower_by": None if speed is None else speed / self.break_even_gib_per_sec,
        }
