"""What is known of a run at its end beside the recorder's rows: the engine's counts and the tiers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvspill.records import Tier, Verb

COUNTS = ("arrived", "completed", "failed", "shed", "prefix_matches", "prefix_bytes_saved")
"""What an engine counts of its requests from the first on, under these names."""


def added(rows: Sequence[Any], *names: str) -> dict[str, Any]:
    """The sums of these fields over some rows, by name."""
    return {name: sum(getattr(row, name) for row in rows) for name in names}


@dataclass(frozen=True, slots=True)
class TierFacts:
    """One tier as it stood at the end of the run."""

    tier: Tier
    backend: str
    modelled: bool
    description: str
    limit_bytes: int
    usable_bytes: int
    used_bytes: int
    peak_bytes: int
    entries: int
    direct_io: bool = False
    verifies: bool = False
    files_opened_direct: int = 0
    files_opened_buffered: int = 0
    crowded_puts: int = 0
    """Writes that waited for room while all that was kept here was in use, over the whole run."""
    counters: Mapping[str, int | float | str] = field(default_factory=dict)
    """What the backend counted for itself, such as calls that it resumed."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the engine knows of a run beside the recorder's rows."""

    simulated: bool
    window_start_ns: int
    window_end_ns: int
    """The measured window as it really was (an interrupted run ends early)."""
    load_start_ns: int
    finished_ns: int
    digest: str
    arrived: int
    """Requests whose intended time came."""
    completed: int
    """Requests served without failure by the end of the load, warm-up included."""
    failed: int
    shed: int
    """Arrivals refused because the backlog was at --max-queue."""
    unfinished_ages_ns: Sequence[int]
    """How long each request had waited by the end that arrived and was not finished (L3)."""
    lateness_ns: tuple[int, ...]
    """How late after its intended time each of a sample of arrivals was seen by the engine."""
    tiers: tuple[TierFacts, ...]
    prefix_matches: int
    prefix_bytes_saved: int
    interrupted: str | None = None
    """None, or why the run ended early."""
    arrivals_end_ns: int | None = None
    """When the last request was meant to come, where the work and not the time ended an open load."""
    under_way: int = 0
    """Requests that were in service when the window ended: part of their work is in it, no token is (S4)."""
    unfinished_stay_ns: int = 0
    """Time inside the window that unfinished requests were in the system, all of them added up."""
    under_way_service_ns: int = 0
    """The part of it in which they were served."""
    unfinished_qos: Sequence[int] = ()
    """Service class of each unfinished request, in the order of their ages; empty where it is not known."""
    unfinished_added_ns: Sequence[int] = ()
    """These ages without the generation of the turn before that they waited for (S11); likewise."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    """What was asked: the kind of workload, what was read of a recording and what was skipped."""
    io_model: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the I/O model over the whole load: read inflation, hit-rate bounds, break-even."""
    errors: Mapping[tuple[Tier, Verb, str], int] = field(default_factory=dict)
    """Failed operations of the whole load by kind, those outside the window included."""
    stuck_ages_ns: tuple[int, ...] = ()
    """Age of each system call that had not returned when the run could wait no longer (S16)."""
    stuck_in: tuple[str, ...] = ()
    """Where they hang, where that is no storage, such as GPU 0 (hit)."""
