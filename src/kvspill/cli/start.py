"""Where the program starts: signals are heeded before anything else is imported, which takes a while."""

import os
import signal
from collections.abc import Callable
from types import FrameType

from kvspill.errors import INTERRUPTED, SIGNALS
from kvspill.machine.handlers import is_taken


def leave(_number: int, _frame: FrameType | None) -> None:
    """End with one line: nothing is under way that would have to be ended or kept."""
    # Another one in the midst of this would say it twice.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.write(2, b"kvspill: error: interrupted\n")
    os._exit(INTERRUPTED)


def heed_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers = leave) -> None:
    """Have this called for each signal that ends a command early."""
    for number in SIGNALS:
        # nohup, or a shell that runs us in the background, had its reasons.
        if not is_taken(number):
            signal.signal(number, handler)
    # Who started us may have them blocked, as one that takes its own by signalfd: that is inherited, too.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def main() -> int:
    """Entry point of the `kvspill` script."""
    heed_signals()
    from kvspill.cli.main import main as run_command_line

    return run_command_line()
