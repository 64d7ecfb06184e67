"""What a cache is told and what a put answers."""

from dataclasses import dataclass

from kvspill.cache.tier import Entry


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How the cache behaves."""

    waterfall: bool = True
    """Demote to make room (C1); False is the seeds' simple rule: the fastest tier with room now."""
    max_concurrent_allocs: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """How a put ended. Without a failure the entry is there, and pinned where that was asked."""

    entry: Entry | None
    failure: str | None = None
