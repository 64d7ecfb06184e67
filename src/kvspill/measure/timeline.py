"""The one-second timeline: columns of sums and of states, a number for each second of the measured window."""

from array import array
from typing import TYPE_CHECKING

from kvspill.records import NS_PER_SEC

if TYPE_CHECKING:
    Column = array[int]


class Timeline:
    """Sums per second since the window's start; columns grow as rows come."""

    def __init__(self, window_start_ns: int):
        self._start_ns = window_start_ns
        # Eight bytes a second and column: a day-long run keeps a few MiB of it.
        self._columns: dict[str, Column] = {}
        self._states: dict[str, Column] = {}

    def add(self, column: str, at_ns: int, amount: int = 1) -> None:
        """Add to the second that holds at_ns, which must not lie before the window."""
        second = (at_ns - self._start_ns) // NS_PER_SEC
        values = self._columns.get(column)
        if values is None:
            values = self._columns[column] = array("q")
        if second >= len(values):
            values.extend([0] * (second + 1 - len(values)))
        values[second] += amount

    def note(self, column: str, at_ns: int, value: int) -> None:
        """A state seen at at_ns, such as a queue's length; it holds until the next one."""
        second = (at_ns - self._start_ns) // NS_PER_SEC
        if second < 0:
            return
        values = self._states.get(column)
        if values is None:
            # Before it was first seen it counts as what it was then.
            values = self._states[column] = array("q", [value])
        if second >= len(values):
            values.extend([values[-1]] * (second + 1 - len(values)))
        values[second] = value

    def columns(self, window_end_ns: int) -> dict[str, list[int]]:
        """All columns at equal length; what fell exactly on the end belongs to the last second."""
        seconds = max(1, -(-(window_end_ns - self._start_ns) // NS_PER_SEC))
        sums = {name: _fold(values, seconds) for name, values in self._columns.items()}
        states = {name: _held(values, seconds) for name, values in self._states.items()}
        return dict(sorted({**sums, **states}.items()))


def _fold(values: "Column", seconds: int) -> list[int]:
    head = [*values[:seconds], *[0] * (seconds - len(values))]
    head[-1] += sum(values[seconds:])
    return head


def _held(values: "Column", seconds: int) -> list[int]:
    """One state per second; the last one that was seen holds to the end."""
    return [*values[:seconds], *[values[-1]] * (seconds - len(values))]
