"""Processes that share out work: none of them outlives an error, and where none can be had, nobody waits."""

import _thread
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any

_OF_A_POOL = 3
"""Threads that a pool of processes starts beside them."""
_PR_SET_PDEATHSIG = 1


def workers_to_be_had(wanted: int) -> int:
    """As many as wanted; 1, which is this process alone, where so many threads cannot be started."""
    over = threading.Event()
    try:
        for _ in range(wanted + _OF_A_POOL):
            _thread.start_new_thread(over.wait, ())
    except RuntimeError:
        return 1
    finally:
        over.set()
    return wanted


@contextmanager
def processes(
    workers: int, begin: Callable[..., None], given: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """So many forks of this process, each of which calls begin with what is given."""
    first = (os.getpid(), begin, given)
    with ProcessPoolExecutor(workers, get_context("fork"), _begin, first) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # What they were at is lost anyway; they hold no files of their own.
            for process in active_children():
                process.kill()
            raise


def _begin(parent: int, begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    """A worker ends with the thread that asked for work, also where a kill keeps that from saying so."""
    # The pipe that it reads its work from does not end: it holds the other end of it, too.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    begin(*given)
