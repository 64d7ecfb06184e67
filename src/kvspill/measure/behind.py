"""Rows of a log are written behind the run's back: a thread encodes and writes, memory stays bounded."""

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kvspill.threads import Daemon
from kvspill.waiting import wait_for

_ROWS_PER_GROUP = 20_000
_GROUPS_WAITING_MAX = 8
_STALL_SECONDS_MAX = 2.0
_HURRIED_SECONDS = 0.8
"""After a signal: what else is waited for has the rest of the 3 s in which a command ends."""


class Table(ABC):
    """A file of rows, and those that wait for it."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.weight = 0

    @abstractmethod
    def open(self) -> None:
        """Make the file."""

    @abstractmethod
    def write(self, rows: list[tuple[Any, ...]]) -> None:
        """Add rows to it."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left; nothing where it was never opened."""


class Behind:
    """The thread that writes to some tables, one after the other."""

    def __init__(self, *tables: Table):
        self.failure: str | None = None
        """Why rows are missing; the run goes on without the log."""
        self._tables = tables
        self._groups: queue.Queue[tuple[Table, list[tuple[Any, ...]]] | None]
        self._groups = queue.Queue(_GROUPS_WAITING_MAX)
        self._written = 0
        self._writer = Daemon(self._write, "kvspill-log")
        try:
            self._writer.start()
        except RuntimeError as error:
            self.failure = str(error)

    @property
    def hangs(self) -> bool:
        """After close: the writer has not come back."""
        return self._writer.is_alive()

    def close(self) -> None:
        """Write what is left and finish all files; `failure` says whether all of it was written."""
        for table in self._tables:
            self._hand_over(table)
        self._put(None)
        self._wait_for(self._ended)

    def _ended(self, seconds: float) -> bool:
        self._writer.join(seconds)
        return not self._writer.is_alive()

    def add(self, table: Table, row: tuple[Any, ...], weight: int = 1) -> None:
        """A row, which takes as much memory as so many usual ones."""
        if self.failure is not None:
            return
        table.rows.append(row)
        table.weight += weight
        if table.weight >= _ROWS_PER_GROUP:
            self._hand_over(table)

    def _hand_over(self, table: Table) -> None:
        self._put((table, table.rows))
        table.rows, table.weight = [], 0

    def _put(self, group: tuple[Table, list[tuple[Any, ...]]] | None) -> None:
        """Wait for room as long as the writer moves on: a disk that hangs must not hold up the run."""

        def taken(seconds: float) -> bool:
            try:
                self._groups.put(group, timeout=seconds)
            except queue.Full:
                return False
            return True

        self._wait_for(taken)

    def _wait_for(self, over: Callable[[float], bool]) -> None:
        while self.failure is None:
            before = self._written
            waited = wait_for(over, _STALL_SECONDS_MAX, _HURRIED_SECONDS)
            if waited is None:
                return
            if self._written == before:
                self.failure = self.failure or f"nothing could be written for {waited:.3g} s"

    def _write(self) -> None:
        try:
            for table in self._tables:
                table.open()
            while self.failure is None and (group := self._groups.get()) is not None:
                table, rows = group
                table.write(rows)
                self._written += 1
        except Exception as error:  # said at the end: a log that fails costs no measurement
            self.failure = cause(error)
        for table in self._tables:
            try:
                table.close()
            except Exception as error:
                self.failure = self.failure or cause(error)


def cause(error: Exception) -> str:
    """Why rows could not be written, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
