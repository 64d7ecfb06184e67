"""Watches users and queue beside a run: one look for each step of the timeline."""

from kvspill.measure.recorder import Recorder
from kvspill.records import NS_PER_SEC
from kvspill.serving.engine import Engine
from kvspill.world import World


async def watch_load(world: World, engine: Engine, recorder: Recorder) -> None:
    """Note users, waiting requests and those in service until the window ends or the watch is cancelled."""
    if world.virtual and recorder.is_open_ended:
        # A timer without end would hide a deadlock in virtual time.
        return
    at_ns = recorder.window_start_ns + NS_PER_SEC // 2
    while at_ns < recorder.window_end_ns:
        await world.sleep_until_ns(at_ns)
        now_ns = world.now_ns()
        recorder.timeline.note("users", now_ns, engine.users)
        recorder.timeline.note("queued", now_ns, engine.queued)
        recorder.timeline.note("in_service", now_ns, engine.in_service)
        at_ns += recorder.timeline.step_seconds * NS_PER_SEC
