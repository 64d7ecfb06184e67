"""Ends a run in which too much fails, a thread hangs or memory is short, and knows for how long one hung."""

import mmap
from collections import Counter
from collections.abc import Callable

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.machine.limits import address_space_left
from kvspill.measure.recorder import Recorder
from kvspill.records import MIB, NS_PER_SEC, Tier, Verb
from kvspill.storage.addresses import GPU_SUSPECTS, in_store, suspects
from kvspill.texts import counted, listed
from kvspill.world import World

_INTERVAL_NS = NS_PER_SEC // 4
_SLOW_NS = NS_PER_SEC
"""Younger system calls are not looked at."""
HANGS_NS = 4 * NS_PER_SEC
"""What has not returned so long after the end of the load hangs: the run is over 5 s after it (S3, S16)."""
_LOOK_NS = NS_PER_SEC // 20
_KINDS_NAMED = 3
_SPARE_BYTES = 16 * MIB
_SPACE_BYTES_MIN = 4 * MIB
_MORE_SPACE = "lower --cpu-mem-gb, --io-threads or --io-size, or raise it (ulimit -v)"


class Health:
    """Watches the errors that the cache counts and the ages of what its tiers' threads are at."""

    def __init__(self, world: World, config: Config, cache: Cache):
        self._world = world
        self._cache = cache
        self._in_store = in_store(config.cache_dir)
        self._max_errors = config.max_errors
        self._max_stall_ns = round(config.max_stall * NS_PER_SEC)

    async def watch(self, end_run: Callable[[str], None]) -> None:
        """Look on until cancelled; ends the run with a reason where it has gone wrong."""
        self._cache.on_error = lambda: self._end_if(self.too_many_errors(), end_run)
        if self._world.virtual:
            # No thread can hang there, and a timer without end would hide a deadlock.
            return
        with mmap.mmap(-1, _SPARE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as spare:
            while True:
                await self._world.sleep_ns(_INTERVAL_NS)
                left_bytes = address_space_left()
                if left_bytes is not None and left_bytes < _SPACE_BYTES_MIN:
                    # Without any the interpreter may never come out of an exception: the end gets this.
                    spare.close()
                    end_run(f"out of memory: the limit of address space is reached; {_MORE_SPACE}")
                    return
                self._end_if(self.too_long_a_stall(), end_run)

    def _end_if(self, reason: str | None, end_run: Callable[[str], None]) -> None:
        if reason is not None:
            end_run(reason)

    def too_many_errors(self) -> str | None:
        """Why the run should end, or None."""
        failed = self._cache.errors.total()
        if failed <= self._max_errors:
            return None
        return (
            f"{counted(failed, 'operation')} failed ({_named(self._cache.errors)}), --max-errors is "
            f"{self._max_errors:,}; check {suspects(self._in_store)}"
        )

    def too_long_a_stall(self) -> str | None:
        """Why the run should end, or None."""
        ages_ns = self._ages_ns(_SLOW_NS)
        if not ages_ns or ages_ns[0] < self._max_stall_ns:
            return None
        thread, check = "an I/O thread", "the device and the kernel log"
        cards = self.hanging(_SLOW_NS)
        if cards:
            thread, check = f"a call of {listed(cards)}", GPU_SUSPECTS
        elif self._in_store:
            thread, check = "a store request", suspects(True)
        return (
            f"{thread} has hung for {ages_ns[0] / NS_PER_SEC:.0f} s, --max-stall is "
            f"{self._max_stall_ns / NS_PER_SEC:g}; check {check}"
        )

    def _ages_ns(self, older_than_ns: int) -> tuple[int, ...]:
        """How long each system call has lasted that has not returned, oldest first."""
        now_ns = self._world.now_ns()
        ages = (age for tier in self._cache.tiers for age in tier.backend.stuck(now_ns, older_than_ns))
        return tuple(sorted(ages, reverse=True))

    def hanging(self, older_than_ns: int = HANGS_NS - _LOOK_NS) -> tuple[str, ...]:
        """What hangs, where that is no storage."""
        now_ns = self._world.now_ns()
        names = (name for tier in self._cache.tiers for name in tier.backend.hanging(now_ns, older_than_ns))
        return tuple(names)

    async def stuck_ages_ns(self, ended_ns: int, patient: bool) -> tuple[int, ...]:
        """Ages of what hangs: began before the end of the load and has not returned in time (S16).

        A run that is not patient, for a signal ended it, goes by the ages as they are.
        """
        while patient and self._world.now_ns() < ended_ns + HANGS_NS:
            if not self._ages_ns(self._world.now_ns() - ended_ns):
                break
            await self._world.sleep_ns(_LOOK_NS)
        now_ns = self._world.now_ns()
        ages_ns: list[int] = []
        for tier in self._cache.tiers:
            # A backend without threads of its own does not know its calls: what it has not answered hangs.
            calls = tier.backend.stuck(now_ns, 0) or [
                now_ns - lost.submitted_ns
                for lost in self._cache.unanswered()
                if lost.tier is tier.name
                for _operation in range(lost.operations)
            ]
            ages_ns += [age_ns for age_ns in calls if age_ns >= HANGS_NS - _LOOK_NS]
        return tuple(sorted(ages_ns, reverse=True))

    def count_unanswered(self, recorder: Recorder) -> None:
        """Tell a recorder of the operations that never returned: as many as hang, the oldest, are at the
        device, and the others wait for those."""
        now_ns = self._world.now_ns()
        for tier in self._cache.tiers:
            calls = len(tier.backend.stuck(now_ns, 0))
            known, before = calls > 0, 0
            for lost in self._cache.unanswered():
                if lost.tier is tier.name:
                    in_device = not known or before < calls
                    recorder.unanswered(
                        lost.tier, lost.verb, lost.submitted_ns, lost.operations, in_device=in_device
                    )
                    before += lost.operations

    @property
    def errors(self) -> dict[tuple[Tier, Verb, str], int]:
        """Failed operations of the whole load by kind."""
        return dict(self._cache.errors)


def _named(errors: Counter[tuple[Tier, Verb, str]]) -> str:
    """The most frequent kinds in words."""
    worst = errors.most_common(_KINDS_NAMED)
    return ", ".join(f"{tier} {verb} {kind}: {count:,}" for (tier, verb, kind), count in worst)
