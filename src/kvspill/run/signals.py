"""SIGINT, SIGTERM and others: the first ends the load and keeps what was measured, the second the program."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

from kvspill.errors import SIGNALS
from kvspill.imports import importing
from kvspill.machine.handlers import is_taken
from kvspill.machine.hung_main import heard
from kvspill.waiting import hurry

_STOPPED_BY = "stopped by "
_HEEDLESS_SECONDS = 3.0
_AGAIN_SECONDS = 0.05


def by_signal(reason: str) -> bool:
    """True where a run ended early because somebody asked for it, not because something failed."""
    return reason.startswith(_STOPPED_BY)


class Interrupts:
    """Turns signals into the end of a command, whatever its trials are doing."""

    came: ClassVar[bool] = False
    """Whether any command of this process was ended by one."""

    heedless_until: ClassVar[float] = 0.0
    """Until then (monotonic time) further signals change nothing: the program ends already."""

    _open: ClassVar[list["Interrupts"]] = []
    """Those that handle signals, one within the other: a signal that came to one holds for all of them."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._end_load: Callable[[str], None] | None = None
        self._computing = False
        self._ending = False
        """Whether a second signal ended the program, wherever it was."""
        self._swallowed = False
        """Whether what was raised last went no further than a callback."""
        self.reason: str | None = None
        """The signal that came, if one did."""

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals for as long as this lasts."""
        # nohup means that the end of the terminal is not the end of the run. These two are heeded even
        # where a shell started the run in the background and had it ignore SIGINT: who sends one means it.
        meant = (signal.SIGINT, signal.SIGTERM)
        heeded = [number for number in SIGNALS if number in meant or not is_taken(number)]
        before = [signal.signal(number, self._handle) for number in heeded]
        around = Interrupts._open[-1] if Interrupts._open else None
        if around is not None:
            self.reason = self.reason or around.reason
        Interrupts._open.append(self)
        hook, sys.unraisablehook = sys.unraisablehook, self._unraisable(sys.unraisablehook)
        try:
            yield
        finally:
            sys.unraisablehook = hook
            Interrupts._open.remove(self)
            if self._swallowed:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if around is None:
                hurry(on=False)
            # The handlers before would cut off the end of the program.
            if time.monotonic() >= Interrupts.heedless_until:
                for number, handler in zip(heeded, before, strict=True):
                    signal.signal(number, handler)
            if around is not None:
                around.reason = around.reason or self.reason
        if self._swallowed and self._ending:
            raise KeyboardInterrupt

    @property
    def stopped_by(self) -> str | None:
        """Why the command ends early, if it does."""
        return None if self.reason is None else f"{_STOPPED_BY}{self.reason}"

    def watch(self, task: "asyncio.Task[Any] | None") -> None:
        """A trial begins in this task, cancelled while there is no load yet; None when it is over."""
        self._task, self._end_load = task, None

    def load_begins(self, end_load: Callable[[str], None]) -> None:
        """From now on a signal ends the load instead, with a reason."""
        self._end_load = end_load

    @contextmanager
    def computing(self) -> Iterator[None]:
        """For what takes long before the load and never looks at the loop: a signal cuts it off there."""
        self._computing = True
        try:
            yield
        finally:
            self._computing = False
        if self.reason is not None:
            # Whatever was being computed has swallowed the interrupt.
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A plug-in may block the loop: what that is to end is heard only once it runs.
        if self._raises(number) or not self._on_loop(heard):
            heard()
        if self._computing and self.reason is None and importing(frame):
            # Nothing may be raised there.
            _in_a_moment(lambda later: self._handle(number, later))
            return
        if self.reason is not None:
            if number == signal.SIGXCPU:
                # The kernel sends it again for each second of CPU time: nobody has lost patience.
                return
            # Many Ctrl-C in a row must not cut off the removal of files that the second one began.
            if time.monotonic() < Interrupts.heedless_until:
                return
            Interrupts.heedless_until = time.monotonic() + _HEEDLESS_SECONDS
            self._ending = True
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name
        Interrupts.came = True
        hurry(on=True)
        if self._computing:
            raise KeyboardInterrupt
        # Between two trials nothing has to be ended: the next one looks at the reason.
        self._on_loop(self._end)

    def _raises(self, number: int) -> bool:
        """Whether a signal ends what runs now, or has done so, and not by way of the loop."""
        first = self.reason is None or number == signal.SIGXCPU
        return self._computing or self._ending or not first

    def _on_loop(self, act: Callable[[], None]) -> bool:
        """Have the loop of the trial under way act; False where none is."""
        if self._task is None or self._task.done():
            return False
        self._task.get_loop().call_soon_threadsafe(act)
        return True

    def _unraisable(self, hook: Callable[[Any], object]) -> Callable[[Any], object]:
        """The hook, but an interrupt that the callback of a weak reference swallowed comes again."""

        def heed(unraisable: Any) -> None:
            if issubclass(unraisable.exc_type, KeyboardInterrupt):
                self._swallowed = True
                _in_a_moment(self._raise_again)
            else:
                hook(unraisable)

        return heed

    def _raise_again(self, frame: FrameType | None) -> None:
        """Where nothing was computed any more, the first signal has ended it already."""
        if importing(frame):
            _in_a_moment(self._raise_again)
        elif self._computing or self._ending:
            self._swallowed = False
            raise KeyboardInterrupt

    def _end(self) -> None:
        if self._end_load is not None:
            self._end_load(f"{_STOPPED_BY}{self.reason}")
        elif self._task is not None:
            self._task.cancel()


def _in_a_moment(act: Callable[[FrameType | None], None]) -> None:
    """Act on a signal where it can't be acted on now; a callback or an import is over soon."""
    signal.signal(signal.SIGALRM, lambda _number, frame: act(frame))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


@contextmanager
def cut_off() -> Iterator[None]:
    """For what is done on the way to a load, or after it: the first signal ends it, as KeyboardInterrupt."""
    interrupts = Interrupts()
    with interrupts.handled(), interrupts.computing():
        yield
