"""Ends a run in which too much fails or an I/O thread hangs, and knows how long threads have hung."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.records import NS_PER_SEC, Tier, Verb
from kvspill.world import World

_INTERVAL_NS = NS_PER_SEC // 4
STUCK_NS = NS_PER_SEC
"""From this age on an operation is reported as stuck."""
_KINDS_NAMED = 3


class Health:
    """Watches the errors that the cache counts and the ages of what its tiers' threads are at."""

    def __init__(self, world: World, config: Config, cache: Cache):
        self._world = world
        self._cache = cache
        self._max_errors = config.max_errors
        self._max_stall_ns = round(config.max_stall * NS_PER_SEC)

    async def watch(self, end_run: Callable[[str], None]) -> None:
        """Look on until cancelled; ends the run with a reason where it has gone wrong."""
        self._cache.on_error = lambda: self._end_if(self.too_many_errors(), end_run)
        # In virtual time no thread can hang, and a timer without end would hide a deadlock.
        while not self._world.virtual:
            await self._world.sleep_ns(_INTERVAL_NS)
            self._end_if(self.too_long_a_stall(), end_run)

    def _end_if(self, reason: str | None, end_run: Callable[[str], None]) -> None:
        if reason is not None:
            end_run(reason)

    def too_many_errors(self) -> str | None:
        """Why the run should end, or None."""
        failed = self._cache.errors.total()
        if failed < self._max_errors:
            return None
        return (
            f"{failed:,} operations failed ({_named(self._cache.errors)}), --max-errors is "
            f"{self._max_errors:,}; check the device, its free space and the kernel log"
        )

    def too_long_a_stall(self) -> str | None:
        """Why the run should end, or None."""
        ages_ns = self.stuck_ages_ns()
        if not ages_ns or ages_ns[0] < self._max_stall_ns:
            return None
        return (
            f"an I/O thread has hung for {ages_ns[0] / NS_PER_SEC:.0f} s, --max-stall is "
            f"{self._max_stall_ns / NS_PER_SEC:g}; check the device and the kernel log"
        )

    def stuck_ages_ns(self) -> tuple[int, ...]:
        """How long each stuck thread has been inside its operation, oldest first."""
        now_ns = self._world.now_ns()
        ages = (age for tier in self._cache.tiers for age in tier.backend.stuck(now_ns, STUCK_NS))
        return tuple(sorted(ages, reverse=True))

    def facts(self) -> Mapping[str, Any]:
        """What the result says of faults, as the load ends."""
        return {"errors": dict(self._cache.errors), "stuck_ages_ns": self.stuck_ages_ns()}


def _named(errors: Counter[tuple[Tier, Verb, str]]) -> str:
    """The most frequent kinds in words."""
    worst = errors.most_common(_KINDS_NAMED)
    return ", ".join(f"{tier} {verb} {kind}: {count:,}" for (tier, verb, kind), count in worst)
