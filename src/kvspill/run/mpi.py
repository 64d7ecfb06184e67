"""MPI, started and ended within bounds, as a mailbox: its calls return at once and are asked again."""

import atexit
import os
import socket
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from kvspill.errors import UsageError
from kvspill.machine.launcher import Launched
from kvspill.run.together import Together

if TYPE_CHECKING:
    from mpi4py import MPI

_LEAVING_SECONDS = 10.0
_REMEDY = (
    "install it for every rank with `pip install 'kvspill[mpi]'` and an MPI library, or give --ranks off "
    "for runs that know nothing of each other"
)


class _Watchdog:
    """Ends the process where a call of the MPI library does not return: its own calls have no bound."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._text = ""
        threading.Thread(target=self._watch, daemon=True).start()

    def watch(self, seconds: float, text: str) -> None:
        self._text, self._due = text, time.monotonic() + seconds

    def enough(self) -> None:
        self._due = None

    def _watch(self) -> None:
        while True:
            time.sleep(0.1)
            if self._due is not None and time.monotonic() >= self._due:
                os.write(2, f"kvspill: error: {self._text}\n".encode())
                os._exit(1)


def join_mpi(launched: Launched, timeout_seconds: float) -> Together:
    """Start MPI and meet the other ranks."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = "mpi4py is not installed" if isinstance(error, ImportError) else " ".join(str(error).split())
        raise UsageError(f"{launched.size} ranks: {reason} for {sys.executable}; {_REMEDY}") from error
    watchdog = _Watchdog()
    watchdog.watch(
        timeout_seconds,
        f"rank {launched.rank} ({socket.gethostname()}): not all of the {launched.size} ranks have started "
        f"within {timeout_seconds:g} s; look at the other ranks, or raise --ranks-timeout",
    )
    MPI.Init_thread(MPI.THREAD_FUNNELED)
    watchdog.enough()
    comm = MPI.COMM_WORLD
    if comm.size != launched.size:
        raise UsageError(
            f"{launched.size} ranks: so many were started, but MPI sees {comm.size}; use the launcher of the "
            f"library that mpi4py loads, which is {MPI.Get_library_version().split(',')[0]}"
        )
    ranks = Together(Mailbox(comm), comm.rank, comm.size, timeout_seconds)
    atexit.register(_leave, ranks, comm, watchdog)
    ranks.hosts = ranks.agree(socket.gethostname(), list)
    return ranks


def _leave(ranks: Together, comm: "MPI.Intracomm", watchdog: _Watchdog) -> None:
    """The last act of a process: nobody leaves before rank 0 does, for the launcher would end the others."""
    from mpi4py import MPI

    name = ranks.name(ranks.index)
    watchdog.watch(ranks.timeout_seconds + _LEAVING_SECONDS, f"{name}: the end of MPI does not return")
    if not ranks.say_goodbye():
        # A rank that hangs or is gone would be waited for without end; the launcher ends it.
        comm.Abort(1)
    MPI.Finalize()
    watchdog.enough()


class Mailbox:
    """Messages between ranks, of any size and in order, by calls that never wait."""

    def __init__(self, comm: "MPI.Intracomm"):
        self._comm = comm
        self._sending: list[Any] = []
        self._arriving: deque[tuple[int, Any]] = deque()

    def send(self, to: int, kind: str, content: Any = None) -> None:
        self._sending.append(self._comm.isend((kind, content), dest=to))

    def poll(self) -> list[tuple[int, str, Any]]:
        """What has come since, with who sent it."""
        from mpi4py import MPI

        self._sending = [request for request in self._sending if not request.test()[0]]
        status = MPI.Status()
        while (message := self._comm.improbe(status=status)) is not None:
            self._arriving.append((status.Get_source(), message.irecv()))
        come: list[tuple[int, str, Any]] = []
        waiting: deque[tuple[int, Any]] = deque()
        behind: set[int] = set()
        for source, request in self._arriving:
            done, content = (False, ("", None)) if source in behind else request.test()
            if done:
                kind, what = content
                come.append((source, kind, what))
            else:
                # What the same rank sent later must not come before it.
                behind.add(source)
                waiting.append((source, request))
        self._arriving = waiting
        return come
