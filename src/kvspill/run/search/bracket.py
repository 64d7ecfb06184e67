"""Bracketing and bisection: the largest level whose window passes, shared by qos and slo."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.run.search.controller import Answer, Levels
from kvspill.run.search.options import SearchOptions
from kvspill.run.search.stage import StageMeasure, pooled

TOLERANCE = 0.04
"""The bracket is narrow enough once it is this share of the level, or one."""
LOOSE = 0.1
"""Where time is short, a bracket of this share is confirmed as it is."""
VISITS_MAX = 6
"""A failure that is in doubt and decides the answer is measured so often, where time allows."""
LOOKS, LOOKS_MAX = 3, 20
"""The highest load is often the one that was asked about: how often it is measured before fewer users are
looked at or where it passes near its target, and in all, as far as the time allows."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a window says about its level."""

    passes: bool
    clear: bool
    """The interval leaves no doubt."""
    enough: bool
    """There were enough rows for a verdict."""
    waiting: bool
    """More time would bring the rows that are missing."""
    text: str
    certain: bool = False
    """It fails, whatever follows in the longest window."""
    own: bool = False
    """It fails while kvspill itself was late: its window is held to the end."""

    def facts(self) -> dict[str, bool]:
        """As it stands in a step of the search."""
        known = {"passes": self.passes, "clear": self.clear, "enough": self.enough}
        return {**known, "certain": True} if self.certain else known


@dataclass(frozen=True, slots=True)
class Held:
    """A level that was held, and what came of it."""

    level: int
    measure: StageMeasure
    judgement: Judgement


class BracketSearch(ABC):
    """A mode that goes up while it passes and down while it doesn't, then halves the gap, then confirms.

    Levels near the limit can come out either way by chance: a failure in doubt is measured again, next to
    the answer and at the highest load, and all windows of a level are judged together. A confirmation that
    fails clearly needs no company.
    """

    def __init__(self, options: SearchOptions):
        self._options = options
        self.held: dict[int, Held] = {}
        self._windows: dict[int, list[StageMeasure]] = {}
        self.confirmed: Held | None = None

    @abstractmethod
    def judge(self, measure: StageMeasure) -> Judgement:
        """What a window says about its level."""

    @abstractmethod
    def factor(self, measure: StageMeasure, passed: bool) -> float:
        """How far to go from a level that passed or not, before both ends are known."""

    @abstractmethod
    def facts(self, held: Held) -> dict[str, Any]:
        """Further figures of an answer that rests on a level."""

    def line(self, measure: StageMeasure) -> str:
        return self.judge(measure).text

    def judged(self, measure: StageMeasure) -> dict[str, bool]:
        return self.judge(measure).facts()

    @property
    def low(self) -> Held | None:
        """The largest level below every failure that passes."""
        high = self.high
        found = [
            held
            for held in self.held.values()
            if held.judgement.passes and (high is None or held.level < high.level)
        ]
        return max(found, key=lambda held: held.level, default=None)

    @property
    def high(self) -> Held | None:
        """The smallest level that fails."""
        found = [held for held in self.held.values() if not held.judgement.passes]
        return min(found, key=lambda held: held.level, default=None)

    def windows(self, level: int) -> int:
        """How many windows a level is judged by."""
        return len(self._windows[level])

    def measures(self, level: int) -> Sequence[StageMeasure]:
        """These windows, each by itself."""
        return self._windows[level]

    def windows_passed(self, level: int) -> int:
        """How many of them pass, each by itself."""
        return sum(self.judge(measure).passes for measure in self._windows[level])

    async def find(self, levels: Levels) -> Held | None:
        """The confirmed answer, or None where not even the lowest level passes."""
        while True:
            step = self._ask_again(levels, LOOKS)
            if step is None and not self._hurry(levels):
                step = self._next() or self._recheck(levels)
            if step is not None:
                await self._hold(levels, *step)
                continue
            low = self.low
            if low is None:
                return None
            # A confirmation that fails widens the bracket downwards, and the search goes on from there.
            kept = await self._confirm(levels, low) and self._ask_again(levels, LOOKS_MAX) is None
            if kept and not self._once_more(levels, low.level):
                return self.confirmed

    async def _hold(self, levels: Levels, level: int, action: str, reason: str) -> Held:
        def done(measure: StageMeasure) -> bool:
            judgement = self.judge(measure)
            return judgement.clear and not judgement.own and (judgement.enough or action != "confirm")

        def patient(measure: StageMeasure) -> bool:
            judgement = self.judge(measure)
            return judgement.waiting or (action == "confirm" and not judgement.enough)

        measure = await levels.hold(
            level, action, reason, done, patient, lambda measure: self.judge(measure).certain
        )
        windows = self._windows.setdefault(level, [])
        windows.append(measure)
        alone = Held(level, measure, self.judge(measure))
        if action == "confirm" and alone.judgement.clear and not alone.judgement.passes:
            # The device is no longer what it was: what it did before says nothing.
            windows[:] = [measure]
        together = pooled(windows)
        self.held[level] = Held(level, together, self.judge(together))
        return alone

    async def _confirm(self, levels: Levels, low: Held) -> bool:
        """Return to the answer once; a failure of all its windows together sends the search on."""
        held = await self._hold(levels, low.level, "confirm", f"largest that passed: {low.judgement.text}")
        together = self.held[low.level].judgement
        if together.passes:
            self.confirmed = Held(low.level, held.measure, together)
        return together.passes

    def _once_more(self, levels: Levels, level: int) -> bool:
        """Whether the highest load passes so near to its target that another window should say so, too."""
        if level != self._options.highest or self.windows(level) >= LOOKS or not levels.time_for(0):
            return False
        return not self.held[level].judgement.clear and self.is_near(level)

    def is_near(self, level: int) -> bool:  # noqa: ARG002 - a mode without a latency target knows none
        """Whether a level that passes may fail another time."""
        return False

    def _next(self) -> tuple[int, str, str] | None:
        """The next level to hold, or None where the bracket is narrow enough or a bound was reached."""
        options, low, high = self._options, self.low, self.high
        if not self.held:
            return options.start, "start", "first stage"
        if low is not None and high is not None:
            if high.level - low.level <= max(1, math.floor(TOLERANCE * low.level)):
                return None
            level = max(low.level + 1, min(high.level - 1, round(math.sqrt(low.level * high.level))))
            return level, "bisect", f"between {self._told(low)} and {self._told(high)}"
        if low is not None:
            if low.level >= options.highest:
                return None
            level = max(low.level + 1, math.ceil(low.level * self.factor(low.measure, True)))
            reason = f"{low.judgement.text} at {options.shown(low.level)}: room left"
            return min(level, options.highest), "scale_up", reason
        assert high is not None, "a level was held"
        if high.level <= options.lowest:
            return None
        level = min(high.level - 1, math.floor(high.level * self.factor(high.measure, False)))
        reason = f"{high.judgement.text} at {options.shown(high.level)}: too much"
        return max(level, options.lowest), "scale_down", reason

    def _told(self, held: Held) -> str:
        return f"{self._options.shown(held.level)} ({held.judgement.text})"

    def next_failed(self, held: Held) -> int | float | None:
        """The smallest load above that failed, as the reader knows it."""
        high = self.high
        return None if high is None or high.level == held.level else self._options.value(high.level)

    def _hurry(self, levels: Levels) -> bool:
        """Both ends are near each other, and another stage would leave no time for the confirmation."""
        low, high = self.low, self.high
        if low is None or high is None or high.level - low.level > max(1, LOOSE * low.level):
            return False
        return not levels.time_for(1)

    def _recheck(self, levels: Levels) -> tuple[int, str, str] | None:
        """Measure the failure next to the answer again, where chance may have decided and time is left."""
        high = self.high
        if high is not None and self.low is not None:
            again = self._again(levels, high, VISITS_MAX)
            if again is not None:
                return again
        return self._ask_again(levels, LOOKS_MAX)

    def _ask_again(self, levels: Levels, looks: int) -> tuple[int, str, str] | None:
        """Measure the highest load again where it failed in doubt, or where its windows differ."""
        held = self.held.get(self._options.highest)
        if held is None:
            return None
        if held.judgement.passes and self.windows_passed(held.level) == self.windows(held.level):
            return None
        return self._again(levels, held, looks)

    def _again(self, levels: Levels, held: Held, looks: int) -> tuple[int, str, str] | None:
        """Measure a level again unless it is clear, was looked at so often, or no time is left."""
        if held.judgement.clear or self.windows(held.level) >= looks:
            return None
        if not levels.time_for(1):
            return None
        return held.level, "recheck", f"in doubt at {self._options.shown(held.level)}: {held.judgement.text}"

    def stages_left(self) -> int:
        """At least so many stages are still to be held, the confirmation (twice as long) included."""
        low, high = self.low, self.high
        if low is None or high is None:
            return 4
        gap, narrow = high.level - low.level, max(1, math.floor(TOLERANCE * low.level))
        return 2 + max(0, math.ceil(math.log2(gap / narrow)))

    def bracket(self) -> str:
        """What is known so far, in words."""
        low, high = self.low, self.high
        parts = [self._verdict(low, "passed")] if low is not None else []
        parts += [self._verdict(high, "did not pass")] if high is not None else []
        return ", ".join(parts) or "nothing was measured"

    def _verdict(self, held: Held, word: str) -> str:
        """What came of a level. A clear failure is one, however few rows it had; a pass needs enough."""
        judgement, level = held.judgement, self._options.shown(held.level)
        if judgement.enough or (judgement.clear and not judgement.passes):
            return f"{level} {word} ({judgement.text})"
        if isinstance(self._options.value(held.level), int):
            level += " user" if level == "1" else " users"
        return f"no verdict on {level} ({judgement.text})"

    def lowest_failed(self, reason: str) -> Answer:
        """The answer where not even the lowest level passes."""
        high = self.high
        assert high is not None, "a search that ends without a pass has a failure"
        return Answer(high.level, high.measure, reason, facts=self.facts(high))

    def evidence(self, held: Held) -> str:
        number = self.windows(held.level)
        return held.judgement.text + (f" over its {number} windows" if number > 1 else "")

    def so_far(self) -> Answer:
        low = self.low
        reason = f"Not concluded: {self.bracket()}."
        judged = low is not None and low.judgement.enough
        level = low.level if low is not None and judged else None
        measure = low.measure if low is not None else None
        facts = {} if low is None else self.facts(low)
        return Answer(level, measure, reason, False, facts, self.stages_left())
