"""The processes of this one."""

import time
from multiprocessing import active_children

_ENDING_SECONDS = 5.0


def left_over() -> list[str]:
    """Processes that do not end by themselves; they are killed then.

    One that was killed a moment ago may still be on its way out, or another thread is taking note of its end.
    """
    until = time.monotonic() + _ENDING_SECONDS
    while active_children() and time.monotonic() < until:
        time.sleep(0.01)
    left = active_children()
    for process in left:
        process.kill()
    return [process.name for process in left]
