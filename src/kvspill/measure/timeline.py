"""The timeline: columns of sums and of states, a number for each second of the measured window.

A window of more than a day has wider steps than a second, so that its length does not decide the memory.
"""

import copy
from array import array
from collections.abc import Iterator
from itertools import zip_longest
from operator import add
from typing import TYPE_CHECKING

from kvspill.records import NS_PER_SEC

if TYPE_CHECKING:
    Column = array[int]

STEPS_MAX = 100_000
"""A day at one second each; a longer window has steps of 2, 4, 8… seconds."""
_SPANS_MAX = 4096
"""So many pauses are remembered: one that ends later may have lasted through them."""


class Timeline:
    """Sums per step since the window's start; columns grow as rows come."""

    def __init__(self, window_start_ns: int):
        self._start_ns = window_start_ns
        self.step_seconds = 1
        # Eight bytes a step and column: under a MiB each at most.
        self._columns: dict[str, Column] = {}
        self._states: dict[str, Column] = {}
        self._spans: dict[str, list[tuple[int, int]]] = {}
        """Those that do not touch, in order, and are not in the columns yet."""
        self._settled_ns: dict[str, int] = {}
        """Up to when a column has them."""

    def add(self, column: str, at_ns: int, amount: int = 1) -> None:
        """Add to the step that holds at_ns, which must not lie before the window."""
        step = (at_ns - self._start_ns) // NS_PER_SEC // self.step_seconds
        if step >= STEPS_MAX:
            step = self._widen(step)
        values = self._columns.get(column)
        if values is None:
            values = self._columns[column] = array("q")
        if step >= len(values):
            values.extend([0] * (step + 1 - len(values)))
        values[step] += amount

    def cover(self, column: str, from_ns: int, to_ns: int) -> None:
        """Something was under way then: the column gets the time of each step in which anything was."""
        spans = self._spans.setdefault(column, [])
        from_ns = max(from_ns, self._settled_ns.get(column, from_ns))
        if from_ns >= to_ns:
            return
        # They come nearly in order of their ends.
        after = len(spans)
        while after and spans[after - 1][0] > to_ns:
            after -= 1
        first = after
        while first and spans[first - 1][1] >= from_ns:
            first -= 1
        if first < after:
            from_ns, to_ns = min(from_ns, spans[first][0]), max(to_ns, spans[after - 1][1])
        spans[first:after] = [(from_ns, to_ns)]
        if len(spans) > _SPANS_MAX:
            self._settle(column, spans[: _SPANS_MAX // 2])
            del spans[: _SPANS_MAX // 2]

    def _settle(self, column: str, spans: list[tuple[int, int]]) -> None:
        for from_ns, to_ns in spans:
            for left_ns, right_ns in self.seconds_between(from_ns, to_ns):
                self.add(column, left_ns, right_ns - left_ns)
            self._settled_ns[column] = to_ns

    def _settle_all(self) -> None:
        """No span to come joins those that there are."""
        for column, spans in self._spans.items():
            self._settle(column, spans)
        self._spans = {}

    def seconds_between(self, from_ns: int, to_ns: int) -> Iterator[tuple[int, int]]:
        """The parts of [from_ns, to_ns] that lie in each second."""
        left_ns = from_ns
        while left_ns < to_ns:
            second = (left_ns - self._start_ns) // NS_PER_SEC
            right_ns = min(to_ns, self._start_ns + (second + 1) * NS_PER_SEC)
            yield left_ns, right_ns
            left_ns = right_ns

    def note(self, column: str, at_ns: int, value: int) -> None:
        """A state seen at at_ns, such as a queue's length; it holds until the next one."""
        step = (at_ns - self._start_ns) // NS_PER_SEC // self.step_seconds
        if step < 0:
            return
        if step >= STEPS_MAX:
            step = self._widen(step)
        values = self._states.get(column)
        if values is None:
            # Before it was first seen it counts as what it was then.
            values = self._states[column] = array("q", [value])
        if step >= len(values):
            values.extend([values[-1]] * (step + 1 - len(values)))
        values[step] = value

    def _widen(self, step: int) -> int:
        """Double the steps until this one is among them; returns its new place."""
        while step >= STEPS_MAX:
            step //= 2
            self._double()
        return step

    def _double(self) -> None:
        self.step_seconds *= 2
        for name, values in self._columns.items():
            self._columns[name] = array("q", [sum(values[at : at + 2]) for at in range(0, len(values), 2)])
        for name, values in self._states.items():
            self._states[name] = array("q", [values[at : at + 2][-1] for at in range(0, len(values), 2)])

    def move(self, by_ns: int) -> None:
        self._settle_all()
        self._start_ns += by_ns

    def drop(self, prefix: str) -> None:
        """Forget the states whose names begin so."""
        for name in [name for name in self._states if name.startswith(prefix)]:
            del self._states[name]

    def bound(self, name: str, end_ns: int) -> None:
        """No step has more of this column's time than its own length: what was added up went on at once."""
        self._settle_all()
        length_ns = self.step_seconds * NS_PER_SEC
        window_ns = end_ns - self._start_ns
        values = self._columns.get(name, array("q"))
        for step, value_ns in enumerate(values):
            values[step] = min(value_ns, length_ns, max(0, window_ns - step * length_ns))

    def merge(self, other: "Timeline") -> None:
        """Add another's columns step by step; both windows begin together."""
        self._settle_all()
        other._settle_all()
        while self.step_seconds < other.step_seconds:
            self._double()
        while other.step_seconds < self.step_seconds:
            other._double()
        for name, values in other._columns.items():
            self._columns[name] = _sum(self._columns.get(name, array("q")), values)
        for name, values in other._states.items():
            mine = self._states.get(name)
            if mine is None:
                self._states[name] = array("q", values)
                continue
            steps = max(len(mine), len(values))
            self._states[name] = array("q", map(add, _held(mine, steps), _held(values, steps)))

    def columns(self, window_end_ns: int) -> dict[str, list[int]]:
        """All columns at equal length; what fell exactly on the end belongs to the last step."""
        whole = -(-(window_end_ns - self._start_ns) // NS_PER_SEC)
        if -(-whole // self.step_seconds) > STEPS_MAX:
            self._widen((whole - 1) // self.step_seconds)
        steps = max(1, -(-whole // self.step_seconds))
        if self._spans:
            # Others may still join these spans: they are counted in a copy.
            settled = copy.deepcopy(self)
            settled._settle_all()
            return settled.columns(window_end_ns)
        sums = {name: _fold(values, steps) for name, values in self._columns.items()}
        states = {name: _held(values, steps) for name, values in self._states.items()}
        return dict(sorted({**sums, **states}.items()))


def _sum(one: "Column", other: "Column") -> "Column":
    return array("q", map(sum, zip_longest(one, other, fillvalue=0)))


def _fold(values: "Column", steps: int) -> list[int]:
    head = [*values[:steps], *[0] * (steps - len(values))]
    head[-1] += sum(values[steps:])
    return head


def _held(values: "Column", steps: int) -> list[int]:
    """One state per step; the last one that was seen holds to the end."""
    return [*values[:steps], *[values[-1]] * (steps - len(values))]
