"""MPI, started and ended within bounds, as a mailbox: its calls return at once and are asked again."""

import atexit
import contextlib
import faulthandler
import os
import pickle
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kvspill.errors import SIGNALS, KvspillError, UsageError
from kvspill.machine.launcher import Launched
from kvspill.run.ranks.several import Together
from kvspill.storage.rundir import clean

if TYPE_CHECKING:
    from mpi4py import MPI

_LEAVING_SECONDS = 10.0
_SAID_SECONDS = 0.3
"""What happened is said before the process ends."""
_REMEDY = (
    "install it for every rank with `pip install 'kvspill[mpi]'` and an MPI library, or give --ranks off "
    "to run each rank by itself"
)


class _Watchdog:
    """Ends the process where a call of the MPI library does not return: those calls have no bound.

    They let no thread of Python run meanwhile: a process of its own says what happened, and a timer of the
    interpreter that needs none ends this one with status 1.
    """

    def __init__(self) -> None:
        orders, self._pipe = os.pipe()
        if os.fork() == 0:
            os.close(self._pipe)
            _guard(orders, os.getppid())
        os.close(orders)
        self._nowhere = open(os.devnull, "w")  # noqa: SIM115 - open as long as the timer may write to it

    def watch(self, seconds: float, text: str, launched: Launched | None = None) -> None:
        """From now on it may take so long; the text says what did, and the launch who should be there."""
        os.write(self._pipe, pickle.dumps((seconds, text, launched)))
        faulthandler.dump_traceback_later(seconds + _SAID_SECONDS, exit=True, file=self._nowhere)

    def clean_up(self, directories: Sequence[Path]) -> None:
        """Should this process be killed, what it leaves in these directories is removed."""
        os.write(self._pipe, pickle.dumps((None, "", tuple(directories))))

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        os.write(self._pipe, pickle.dumps((None, "", None)))


def _guard(orders: int, pid: int) -> NoReturn:
    """Follow orders until nobody gives them any more."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    seconds, text, launched = None, "", None
    directories: tuple[Path, ...] = ()
    while select.select([orders], [], [], seconds)[0]:
        raw = os.read(orders, select.PIPE_BUF)
        if not raw:
            _clean(directories)
            os._exit(0)
        seconds, text, more = pickle.loads(raw)
        if isinstance(more, tuple):
            directories = more
        else:
            launched = more
    os.write(2, f"kvspill: error: {text.format(who=_missing(launched))}\n".encode())
    time.sleep(2 * _SAID_SECONDS)
    if os.getppid() == pid:
        os.kill(pid, signal.SIGKILL)
    os._exit(1)


def _clean(directories: Sequence[Path]) -> None:
    """Remove what the process left that is gone; nobody waits for the end of our output."""
    for number in (1, 2):
        os.close(number)
    for directory in directories:
        with contextlib.suppress(OSError, KvspillError):
            clean(directory)


def _name(launched: Launched, rank: int) -> str:
    """The address at which a rank can be seen by others on its machine; no file stands for it."""
    return f"\0kvspill {launched.job} {rank}"


def _missing(launched: Launched | None) -> str:
    """The ranks that have not started, where all are on this machine."""
    if launched is None or launched.local_size != launched.size:
        return "not all ranks have"
    there = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    missing = [str(rank) for rank in range(launched.size) if there.connect_ex(_name(launched, rank))]
    if not missing:
        return "not all ranks have"
    return f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(missing)} have"


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
    here = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        here.bind(_name(launched, launched.rank))
    watchdog = _Watchdog()
    watchdog.watch(
        timeout_seconds,
        f"rank {launched.rank} on {socket.gethostname()}: {{who}} not started within {timeout_seconds:g} s; "
        "look at the other ranks, or raise --ranks-timeout",
        launched,
    )
    MPI.Init_thread(MPI.THREAD_FUNNELED)
    watchdog.stop()
    comm = MPI.COMM_WORLD
    if comm.size != launched.size:
        raise UsageError(
            f"{launched.size} ranks: so many were started, but MPI sees {comm.size}; use the launcher of the "
            f"library that mpi4py loads, which is {MPI.Get_library_version().split(',')[0]}"
        )
    ranks = Together(Mailbox(comm, watchdog), comm.rank, comm.size, timeout_seconds)
    atexit.register(_leave, ranks, comm, watchdog)
    ranks.hosts = ranks.agree(socket.gethostname(), list)
    return ranks


def _leave(ranks: Together, comm: "MPI.Intracomm", watchdog: _Watchdog) -> None:
    """The last act of a process: nobody leaves before rank 0 does, for the launcher would end the others."""
    from mpi4py import MPI

    name = ranks.name(ranks.index)
    watchdog.watch(ranks.timeout_seconds + _LEAVING_SECONDS, f"{name}: the end of MPI does not return")
    # A launcher ends those that are left with a signal, and there is nothing more to be cut off.
    with contextlib.suppress(KeyboardInterrupt):
        if not ranks.say_goodbye():
            # A rank that hangs or is gone would be waited for without end; the launcher ends it.
            comm.Abort(1)
        MPI.Finalize()
    watchdog.stop()


class Mailbox:
    """Messages between ranks, of any size and in order, by calls that never wait."""

    def __init__(self, comm: "MPI.Intracomm", watchdog: _Watchdog):
        self._comm = comm
        self.clean_up = watchdog.clean_up
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
