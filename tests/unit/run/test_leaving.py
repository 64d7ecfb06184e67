"""A rank leaves MPI without a word, whatever signal comes then."""

import sys
from types import ModuleType
from typing import Any

import pytest

from kvspill.run.ranks import mpi


class Stub:
    """Ranks, communicator, watchdog and library, as far as leaving asks for them."""

    index, timeout_seconds = 1, 5.0

    def __init__(self) -> None:
        self.stopped = False

    def name(self, rank: int) -> str:
        return f"rank {rank}"

    def watch(self, *_words: object) -> None:
        """Nothing hangs here."""

    def say_goodbye(self) -> bool:
        return True

    def Finalize(self) -> None:  # noqa: N802 - as the library calls it
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.stopped = True


def test_the_launchers_signal_at_the_end_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    stub: Any = Stub()
    library: Any = ModuleType("mpi4py")
    library.MPI = stub
    monkeypatch.setitem(sys.modules, "mpi4py", library)
    mpi._leave(stub, stub, stub)
    assert stub.stopped
