"""What a person sees while a run goes on: one refreshed block on a terminal, a line every 10 s elsewhere."""

import atexit
import re
import sys
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

from kvspill.records import NS_PER_SEC
from kvspill.run.live import Live
from kvspill.run.stages import Policy, Stages
from kvspill.run.status import LoadStatus, Recent, block, fitted, line, search_line, search_lines
from kvspill.texts import make_console, mute, one_line, put
from kvspill.world import World

if TYPE_CHECKING:
    from rich.live import Live as Block

TERMINAL_SECONDS = 1.0
PLAIN_SECONDS = 10.0
_WIDE_GAP = re.compile(" {4,}")


class Progress:
    """Writes to stderr, so that the summary on stdout stays clean."""

    def __init__(self, quiet: bool, stream: IO[str] | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._on_terminal = not quiet and self._stream.isatty()
        self._block: Block | None = None
        self.live: Live | None = None
        """Where others watch the runs, too."""
        self._said_often = 0

    def say(self, text: str) -> None:
        """A line of its own."""
        if not self._quiet:
            self.insist(text)

    def insist(self, text: str) -> None:
        """A line that also --quiet lets through."""
        self.end_block()
        try:
            put(one_line(text), self._stream)
        except OSError:
            # `2>&1 | tee` at Ctrl-C: the reader is gone, but what was measured must still be kept.
            self._quiet = True
            mute(self._stream)

    def say_often(self, text: str) -> None:
        """Called about once a second: refreshes the block on a terminal, one line in ten elsewhere."""
        if self._on_terminal:
            self._refresh([text])
        elif self._said_often % round(PLAIN_SECONDS) == 0:
            self.say(text)
        self._said_often += 1

    def preparing(self, what: str, done: int, total: int) -> None:
        """Called by backends while they get ready."""
        if total <= 0 or self._quiet:
            return
        text = f"preparing {what}: {100 * done // total} %"
        if self._on_terminal:
            self._refresh([text])
        elif done >= total:
            self.say(text)

    async def watch(
        self, world: World, see: Callable[[], LoadStatus], stages: Stages, policy: Policy
    ) -> None:
        """Show the state of the run until cancelled; of a search, that of the stage under way."""
        recent = Recent()

        def lines() -> list[str]:
            status, now = policy.status, see()
            if status is not None:
                measuring = stages.measuring is not None
                if self._on_terminal:
                    return search_lines(now, status, measuring)
                return [search_line(now, status, measuring)]
            return block(now, recent.before(now)) if self._on_terminal else [line(now)]

        await self.follow(world, lines)

    async def follow(self, world: World, lines: Callable[[], Sequence[str]]) -> None:
        """Show lines, as they are then, again and again until cancelled; a log gets them as one."""
        if self._quiet or world.virtual:
            return
        interval_ns = round((TERMINAL_SECONDS if self._on_terminal else PLAIN_SECONDS) * NS_PER_SEC)
        try:
            while True:
                await world.sleep_ns(interval_ns)
                if self._on_terminal:
                    self._refresh(lines())
                else:
                    # The block's columns mean nothing on one line.
                    self.say(_WIDE_GAP.sub(" ", "   ".join(lines())))
        finally:
            self.end_block()

    def _refresh(self, lines: Sequence[str]) -> None:
        from rich.live import Live as Block
        from rich.text import Text

        if self._block is None:
            console = make_console(self._stream)
            # No thread of its own and nothing redirected: the event loop alone decides when it costs time.
            self._block = Block(
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._block.start()
            # Whatever ends the program, the terminal gets its cursor back.
            atexit.register(self.end_block)
        text = fitted(lines, self._block.console.width)
        self._block.update(Text(text, no_wrap=True), refresh=True)

    def end_block(self) -> None:
        """Take the block off the screen, before anything else is printed there."""
        if self._block is not None:
            self._block.stop()
            self._block = None
            atexit.unregister(self.end_block)
