"""What a search is told: its mode, its pace, its bounds and its targets."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvspill.records import NS_PER_MS, QoS


@dataclass(frozen=True, slots=True)
class SloTarget:
    """The promise of the slo mode: this percentile of this latency, for each of these classes."""

    latency: str = "added"
    percentile: float = 95.0
    limits_ms: Mapping[QoS, float] = field(default_factory=dict)
    """The limit of each chosen class."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take. A stage settles, then is measured for `shortest` to `longest` intervals."""

    interval_ns: int
    shortest: int = 6
    longest: int = 24
    cooldown: int = 3
    """Intervals to wait after users were retired."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Everything a mode may need."""

    mode: str
    start: int
    lowest: int
    highest: int
    pace: Pace
    start_ns: int
    end_ns: int
    first_stage_ns: int = 0
    """Before this time nothing is measured (an explicit warm-up)."""
    target_saturation: float = 0.8
    up: float = 1.2
    down: float = 0.8
    by_storage: bool = True
    """Capacity is judged by KV tokens moved on the storage tier; otherwise by tokens generated."""
    slo: SloTarget = field(default_factory=SloTarget)
    sla_ms: Mapping[QoS, float] = field(default_factory=dict)
    """Each class's p95 target, for the monitor."""
    with_wait: bool = True
    """A user's round includes the wait in the queue: true of closed users, whose wait is bounded."""
    drain: bool = False
    """Open arrivals: a stage must not inherit the backlog of the one before; waiting requests are dismissed.
    Capacity does so only where it looks for fewer users."""
    round_ns: int = 0
    """A user's mean pause and answer by the configuration: no stage settles sooner. 0 where unknown."""
    rounds_per_sec: float = math.inf
    """How often a mean user asks where storage takes no time; infinity where unknown."""
    class_shares: Mapping[QoS, float] = field(default_factory=dict)
    """Of the users, by class."""
    value: Callable[[int], int | float] = int
    """A level as the reader knows it."""

    @property
    def kept_round_ns(self) -> float:
        """A mean round of users whose requests take no longer than their target allows."""
        return self.round_ns + max(self.slo.limits_ms.values(), default=0.0) * NS_PER_MS

    def shown(self, level: int) -> str:
        """A level in words."""
        value = self.value(level)
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
