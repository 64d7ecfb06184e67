"""What is watched beside a window: the machine's counters, other runs, and how late the event loop wakes."""

import asyncio
import contextlib
from typing import Any

from kvspill.machine.probes import Probe, Snapshot
from kvspill.measure.histograms import Histogram
from kvspill.records import NS_PER_SEC
from kvspill.storage.neighbours import Traffic
from kvspill.threads import Daemon
from kvspill.world import World

LAG_INTERVAL_NS = 20_000_000
_NEIGHBOURS_INTERVAL_NS = NS_PER_SEC // 2
_LAST_LOOK_SECONDS_MAX = 0.3


class LoopLag:
    """Samples how late the event loop wakes: every interval it asks to be woken and looks at the clock."""

    def __init__(self, world: World, interval_ns: int = LAG_INTERVAL_NS):
        self._world = world
        self._interval_ns = interval_ns
        self.histogram = Histogram()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            due_ns = self._world.now_ns() + self._interval_ns
            await self._world.sleep_ns(self._interval_ns)
            self.histogram.record(max(0, self._world.now_ns() - due_ns))

    def statistics_ms(self) -> dict[str, float] | None:
        return self.histogram.statistics_ms()


class WindowWatch:
    """Holds a probe and the lag sampler to the measured window of a real run.

    Start `run` as a task when the load starts; call `finish` the moment the window ends, and cancel the task.
    """

    def __init__(self, world: World, probe: Probe, window_start_ns: int):
        self._world = world
        self._probe = probe
        self._window_start_ns = window_start_ns
        self._lag = LoopLag(world)
        self._traffic = Traffic(probe.directories)
        self._looking: Daemon | None = None
        self._before: Snapshot | None = None

    async def run(self) -> None:
        """Take the first snapshot when the window opens, then sample the lag until cancelled."""
        await self._world.sleep_until_ns(self._window_start_ns)
        self._before = self._probe.snapshot()
        await asyncio.gather(self._lag.run(), self._look_around())

    async def _look_around(self) -> None:
        while True:
            self._look()
            await self._world.sleep_ns(_NEIGHBOURS_INTERVAL_NS)

    def _look(self, wait_seconds: float = 0.0) -> None:
        """On a thread of its own, for their directories may lie on a device that hangs."""
        if self._looking is not None:
            self._looking.join(wait_seconds)
        if self._looking is None or not self._looking.is_alive():
            looking = Daemon(self._traffic.look, "kvspill-look")
            # Where no further thread is to be had, the looks before must do.
            with contextlib.suppress(RuntimeError):
                looking.start()
                self._looking = looking

    def finish(self) -> dict[str, Any] | None:
        """What happened since the window opened, or None where it never did."""
        if self._before is None:
            return None
        found = self._probe.difference(self._before, self._probe.snapshot())
        self._look(_LAST_LOOK_SECONDS_MAX)
        if self._looking is not None:
            self._looking.join(_LAST_LOOK_SECONDS_MAX)
        lag_ms = self._lag.statistics_ms()
        return {**found, "neighbours": self._traffic.moved(), "event_loop_lag_ms": lag_ms}
