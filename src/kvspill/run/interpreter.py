"""How the interpreter is set while a trial lasts: when threads run, how often cycles are sought."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_INTERVAL_SECONDS = 0.0005
"""A thread back from a system call should not wait long for the interpreter (E1)."""


@contextmanager
def rarer_collections(simulated: bool) -> Iterator[None]:
    """A trial makes millions of small objects and few cycles: look for those less often.

    Beside real I/O a search must stay well below a millisecond: answers wait for it.
    """
    before = gc.get_threshold()
    gc.set_threshold(500_000 if simulated else 10_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        # What was frozen as users joined and at the end of the load.
        gc.unfreeze()


@contextmanager
def switch_interval() -> Iterator[None]:
    """Let threads that return from system calls have their turn soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
