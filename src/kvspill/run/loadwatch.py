"""Watches load and device beside a run: one look for each step of the timeline."""

from kvspill.cache.cache import Cache
from kvspill.machine.probes import Probe
from kvspill.measure.recorder import Recorder
from kvspill.records import NS_PER_SEC
from kvspill.serving.engine import Engine
from kvspill.world import World

DEVICE_COLUMNS = {
    "device_busy_ms_per_sec": ("busy_ms",),
    "device_queue_ms_per_sec": ("queue_ms",),
    "device_ios_per_sec": ("reads", "writes"),
}
"""Columns of the timeline, and the kernel's counters of the devices that each is the growth of.

Milliseconds with work in a second are the utilisation (of several devices: the sum); the requests' own
milliseconds in a second are the mean depth of the device's queue.
"""


async def watch_load(world: World, engine: Engine, cache: Cache, recorder: Recorder) -> None:
    """Note users, requests and operations under way until the window ends or the watch is cancelled."""
    if world.virtual and recorder.is_open_ended:
        # A timer without end would hide a deadlock in virtual time.
        return
    at_ns = recorder.window_start_ns + NS_PER_SEC // 2
    while at_ns < recorder.window_end_ns:
        await world.sleep_until_ns(at_ns)
        now_ns = world.now_ns()
        recorder.timeline.note("users", now_ns, engine.own_users)
        recorder.timeline.note("queued", now_ns, engine.queued)
        recorder.timeline.note("in_service", now_ns, engine.in_service)
        for tier in cache.tiers:
            recorder.timeline.note(f"{tier.name.value}_in_flight", now_ns, cache.in_flight(tier.name))
        at_ns += recorder.timeline.step_seconds * NS_PER_SEC


class DeviceWatch:
    """Notes what the devices did in each step of a window; nothing where the kernel does not tell.

    Start `run` as a task when the window is opened; call `finish` the moment it ends, and cancel the task.
    """

    def __init__(self, world: World, probe: Probe, recorder: Recorder):
        self._world = world
        self._probe = probe
        self._recorder = recorder
        self._seen_ns = 0
        self._seen: dict[str, int] | None = None

    async def run(self) -> None:
        """Look at the end of each step until cancelled."""
        at_ns = self._recorder.window_start_ns
        await self._world.sleep_until_ns(at_ns)
        self._look()
        while self._seen is not None and at_ns < self._recorder.window_end_ns:
            at_ns += self._recorder.timeline.step_seconds * NS_PER_SEC
            await self._world.sleep_until_ns(at_ns)
            self._note()

    def finish(self) -> None:
        """The last step, where enough of it has passed for its rates to say something."""
        if self._seen is not None and 2 * (self._world.now_ns() - self._seen_ns) >= NS_PER_SEC:
            self._note()

    def _look(self) -> None:
        self._seen, self._seen_ns = self._probe.device_counters(), self._world.now_ns()

    def _note(self) -> None:
        before, before_ns = self._seen, self._seen_ns
        self._look()
        if before is None or self._seen is None:
            return
        for column, counters in DEVICE_COLUMNS.items():
            grown = sum(self._seen[name] - before[name] for name in counters)
            per_sec = round(grown * NS_PER_SEC / max(1, self._seen_ns - before_ns))
            # What was looked back on lies between the two looks, however late they are.
            self._recorder.timeline.note(column, (before_ns + self._seen_ns) // 2, per_sec)
