"""What a cache is told and what a put answers."""

from dataclasses import dataclass, field

from kvspill.cache.tier import Entry
from kvspill.records import CANCELLED


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How the cache behaves."""

    waterfall: bool = True
    """Demote to make room (C1); False is the seeds' simple rule: the fastest tier with room now."""
    max_concurrent_allocs: int = 0
    in_blocks: bool = False
    """Entries are blocks, many of one size: those that must go leave as one batch. Whole entries each go
    by themselves, so that none waits for another."""
    demote_min_uses: int = 0
    """What was used less often is dropped instead of demoted."""
    seen_max: int = 1_000_000
    """Keys whose uses are remembered for that rule."""
    in_order: bool = False
    """What must go leaves one after the other, so that no device's speed decides who arrives below first."""


@dataclass(slots=True)
class Put:
    """How a batch of new entries ended."""

    entries: list[Entry] = field(default_factory=list)
    """Those that were written; pinned where that was asked."""
    failed: list[str] = field(default_factory=list)
    """The error of each write that failed."""
    refused: int = 0
    """Entries for which no tier had or could make room."""
    refusal: str | None = None
    """Why: no_space, or too_large for every tier."""
    cancelled: bool = False
    """The end of the run cut it off."""
    lost: list[str] = field(default_factory=list)
    """The error of each entry that was to be demoted to make room, and was lost on its way (C6)."""

    @property
    def demotion_error(self) -> str | None:
        """What went wrong while room was made; the new entries may be there all the same."""
        return self.lost[0] if self.lost else None

    @property
    def failure(self) -> str | None:
        """Why not all of them were written, in a word."""
        if self.failed:
            return self.failed[0]
        return self.refusal or (CANCELLED if self.cancelled else None)
