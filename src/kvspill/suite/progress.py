"""What a person sees while a run goes on: one refreshed line on a terminal, a line every 10 s elsewhere."""

import sys
from collections.abc import Callable
from typing import IO

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import GIB, NS_PER_SEC, Outcome, Tier, Verb
from kvspill.serving.engine import Engine
from kvspill.world import World

_TERMINAL_SECONDS = 0.5
_PLAIN_SECONDS = 10.0


class Progress:
    """Writes to stderr, so that the summary on stdout stays clean."""

    def __init__(self, quiet: bool, stream: IO[str] | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._live = not quiet and self._stream.isatty()
        self._line_open = False
        self._said_often = 0

    def say_often(self, text: str) -> None:
        """Called about once a second: refreshes the line on a terminal, one line in ten elsewhere."""
        if self._live:
            self._refresh(text)
        elif self._said_often % round(_PLAIN_SECONDS) == 0:
            self.say(text)
        self._said_often += 1

    def say(self, text: str) -> None:
        """A line of its own."""
        if not self._quiet:
            self._end_line()
            print(text, file=self._stream, flush=True)

    def preparing(self, what: str, done: int, total: int) -> None:
        """Called by backends while they get ready."""
        if total <= 0 or self._quiet:
            return
        text = f"preparing {what}: {100 * done // total} %"
        if self._live:
            self._refresh(text)
        elif done >= total:
            self.say(text)

    async def watch(
        self, world: World, config: Config, engine: Engine, recorder: Recorder, cache: Cache
    ) -> None:
        """Show the state of the run until cancelled."""
        start_ns = world.now_ns()
        await self.follow(
            world,
            lambda: _status((world.now_ns() - start_ns) / NS_PER_SEC, config, engine, recorder, cache),
        )

    async def follow(self, world: World, text: Callable[[], str]) -> None:
        """Show a line, as it is then, again and again until cancelled."""
        if self._quiet or world.virtual:
            return
        interval_ns = round((_TERMINAL_SECONDS if self._live else _PLAIN_SECONDS) * NS_PER_SEC)
        try:
            while True:
                await world.sleep_ns(interval_ns)
                if self._live:
                    self._refresh(text())
                else:
                    self.say(text())
        finally:
            self._end_line()

    def _refresh(self, text: str) -> None:
        self._stream.write("\r\x1b[2K" + text[:160])
        self._stream.flush()
        self._line_open = True

    def _end_line(self) -> None:
        if self._line_open:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._line_open = False


def _status(elapsed_seconds: float, config: Config, engine: Engine, recorder: Recorder, cache: Cache) -> str:
    """One line: time, users, queue, throughput per tier, hits, errors."""
    whole = f"/{config.duration:.0f}" if config.duration is not None else ""
    window_seconds = elapsed_seconds - config.warmup_seconds
    parts = [
        f"{elapsed_seconds:5.0f}{whole} s",
        f"{config.num_users} users",
        f"{engine.in_service} in service",
        f"{engine.queued} queued",
        f"{engine.completed} done",
    ]
    if window_seconds <= 0:
        parts.append("warming up")
        return "  ".join(parts)
    for tier in cache.tiers:
        read, written = (
            sum(recorder.lane(tier.name, verb).nbytes.values()) / GIB / window_seconds
            for verb in (Verb.READ, Verb.WRITE)
        )
        label = {Tier.GPU: "gpu", Tier.CPU: "cpu", Tier.STORAGE: "storage"}[tier.name]
        parts.append(f"{label} r {read:.2f} w {written:.2f} GiB/s")
    counts = dict.fromkeys(Outcome, 0)
    for (outcome, *_rest), count in recorder.lookups.items():
        counts[outcome] += count
    looked = counts[Outcome.HIT] + counts[Outcome.MISS]
    if looked:
        parts.append(f"{100 * counts[Outcome.HIT] / looked:.0f} % hits")
    errors = sum(sum(lane.errors.values()) for lane in recorder.lanes())
    if errors:
        parts.append(f"{errors} errors")
    return "  ".join(parts)
