"""The capacity mode: adds users until throughput stops to rise, and returns to the peak to confirm it."""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from kvspill.measure.statistics import Interval
from kvspill.run.search.controller import DESCEND, Answer, Levels
from kvspill.run.search.options import SearchOptions
from kvspill.run.search.stage import StageMeasure

FIRST_FACTOR, LATER_FACTOR = 2.0, 1.5
WORTHWHILE_GAIN = 1.5
"""A doubling that brings less than this is followed by steps of x1.5."""
NO_GAIN = 1.01
"""Throughput that is not above the best by this factor has stopped to rise."""
CLEAR_GAIN = 1.1
"""Throughput that is surely above the best by this factor still rises: no need to know it better."""
STAGES_WITHOUT_GAIN = 2
PLATEAU = 0.99
"""Users within this share of the highest throughput are at the peak too; the fewest of them count."""
PRECISION = 0.02
SAME = 0.05
"""A confirmation this near to the stage it confirms agrees with it."""
START_SHARE = 0.9
"""A first stage that has this share of the best, and whose interval reaches it, may have too many users."""
CONFIRMATIONS_MAX = 3
PEAK_FOUND = "Peak capacity found"


@dataclass(frozen=True, slots=True)
class _Stage:
    level: int
    measure: StageMeasure


class CapacityMode:
    """x2, then x1.5, until throughput falls clearly once or does not rise twice."""

    def __init__(self, options: SearchOptions):
        self._options = options
        self._stages: list[_Stage] = []
        self._confirmations: list[_Stage] = []
        self._fell = False
        self._descended = False
        self._hurried = False
        """There was no time to ask whether fewer users reach the peak, too."""

    def rate(self, measure: StageMeasure) -> Interval:
        """The throughput that is maximised."""
        return measure.stored if self._options.by_storage else measure.generated

    def line(self, measure: StageMeasure) -> str:
        rate = self.rate(measure)
        what = "KV tok/s on storage" if self._options.by_storage else "tok/s"
        return f"{rate.mean:,.0f} {what} [{rate.low:,.0f}, {rate.high:,.0f}]"

    def judged(self, measure: StageMeasure) -> dict[str, bool]:  # noqa: ARG002 - nothing passes or fails
        return {}

    async def search(self, levels: Levels) -> Answer:
        reached = await self._climb(levels)
        await self._descend(levels)
        await self._refine(levels)
        while not self._confirmations or (
            len(self._confirmations) < CONFIRMATIONS_MAX and levels.time_for(0)
        ):
            peak = self._peak()
            reason = f"return to the peak of {self.line(peak.measure)}"
            held = await self._hold(levels, peak.level, "confirm", reason)
            self._confirmations.append(held)
            if self._holds(held):
                break
        return self._answer(self._confirmations[-1], reached)

    async def _climb(self, levels: Levels) -> bool:
        """Add users until it no longer helps; False where the highest load allowed still helped."""
        level, action, reason = self._options.start, "start", "first stage"
        factor, best, idle_stages = FIRST_FACTOR, 0.0, 0
        while True:
            held = await self._hold(levels, level, action, reason, best * CLEAR_GAIN or math.inf)
            self._stages.append(held)
            now = self.rate(held.measure)
            if self._falls_clearly(held):
                self._fell = True
                return True
            # Where nothing has reached the storage tier yet, nothing can have stopped to rise.
            idle_stages = 0 if now.mean > best * NO_GAIN or now.mean == 0 else idle_stages + 1
            if idle_stages >= STAGES_WITHOUT_GAIN:
                return True
            if level >= self._options.highest:
                return False
            if best and now.mean < best * WORTHWHILE_GAIN:
                factor = LATER_FACTOR
            best = max(best, now.mean)
            reason = f"{self.line(held.measure)} at {self._options.shown(level)}, best so far {best:,.0f}"
            level, action = min(self._options.highest, max(level + 1, math.ceil(level * factor))), "scale_up"

    async def _descend(self, levels: Levels) -> None:
        """The first stage may have had more users than the peak needs: halve them until throughput falls.

        The peak is known already: where the time is short, its confirmation goes first.
        """
        first, lowest = self._stages[0], self._options.lowest
        if not self._reaches(first.level, START_SHARE):
            return
        level, reached = first.level, True
        while reached and level > lowest:
            if not levels.time_for(1):
                self._hurried = True
                return
            self._descended = True
            reason = (
                f"{self.line(first.measure)} at {self._options.shown(first.level)}: fewer may reach it too"
            )
            level = max(lowest, level // 2)
            self._stages.append(await self._hold(levels, level, DESCEND, reason))
            reached = self._reaches(level)
        fewest = self._peak().level
        middle = round(math.sqrt(level * fewest))
        if level < middle < fewest and levels.time_for(1):
            shown = self._options.shown
            reason = f"the fewest that reach the peak are between {shown(level)} and {shown(fewest)}"
            self._stages.append(await self._hold(levels, middle, DESCEND, reason))

    def _reaches(self, level: int, share: float = 1 - SAME) -> bool:
        """Whether a level's interval reaches the mean of all that are as good as the best."""
        rates = [self._rate(other) for other in self._levels()]
        best = max(rate.mean for rate in rates)
        plateau = fmean(rate.mean for rate in rates if rate.mean >= (1 - SAME) * best)
        rate = self._rate(level)
        return plateau > 0 and rate.mean >= share * plateau and rate.high >= plateau

    async def _refine(self, levels: Levels) -> None:
        """A peak that falls off on its far side may lie between two stages: look there once each."""
        if not self._fell:
            return
        peak = max(self._stages, key=lambda held: self.rate(held.measure).mean)
        held_levels = sorted(held.level for held in self._stages)
        place = held_levels.index(peak.level)
        for other in (held_levels[place + 1 : place + 2], held_levels[max(0, place - 1) : place]):
            middle = round(math.sqrt(peak.level * other[0])) if other else peak.level
            if middle not in held_levels and levels.time_for(1):
                shown = self._options.shown
                reason = f"the peak may lie between {shown(peak.level)} and {shown(other[0])}"
                self._stages.append(await self._hold(levels, middle, "refine", reason))

    async def _hold(
        self, levels: Levels, level: int, action: str, reason: str, clear: float = math.inf
    ) -> _Stage:
        """Hold a level until its throughput is known well, or to lie above `clear` for sure."""

        def done(measure: StageMeasure) -> bool:
            rate = self.rate(measure)
            half = rate.relative_half_width
            return rate.low > clear or (half is not None and half <= PRECISION)

        return _Stage(level, await levels.hold(level, action, reason, done))

    def _falls_clearly(self, held: _Stage) -> bool:
        """Below the best window, and their intervals don't touch."""
        best = max(self._stages, key=lambda stage: self.rate(stage.measure).mean)
        now, then = self.rate(held.measure), self.rate(best.measure)
        return now.mean < then.mean * PLATEAU and now.high < then.low

    def _levels(self) -> list[int]:
        return sorted({held.level for held in self._stages})

    def _rate(self, level: int) -> Interval:
        """Throughput of a level by its longest window, the latest of equals: that of a return, if any."""
        windows = [
            held.measure for held in (*self._confirmations[::-1], *self._stages) if held.level == level
        ]
        return self.rate(max(windows, key=lambda measure: measure.seconds))

    def _peak(self) -> _Stage:
        """The stage with the fewest users whose throughput is the highest, or as good as that."""
        highest = max(self._rate(level).mean for level in self._levels())
        level = min(
            level
            for level in self._levels()
            if self._rate(level).mean >= highest * PLATEAU or (self._descended and self._reaches(level))
        )
        return self._first(level)

    def _beaten(self, held: _Stage) -> bool:
        """Whether another level did clearly better than a confirmation: then it was no peak."""
        now = self.rate(held.measure)
        others = [self._rate(level) for level in self._levels() if level != held.level]
        return any(now.mean < other.mean * PLATEAU and now.high < other.low for other in others)

    def _holds(self, held: _Stage) -> bool:
        """Whether a return to a peak confirms it."""
        return self._agrees(held, self._first(held.level)) and not self._beaten(held)

    def _agrees(self, held: _Stage, peak: _Stage) -> bool:
        now, then = self.rate(held.measure), self.rate(peak.measure)
        near = abs(now.mean - then.mean) <= SAME * then.mean
        return near or (now.low <= then.high and then.low <= now.high)

    def _answer(self, confirmed: _Stage, reached: bool) -> Answer:
        reason = PEAK_FOUND if reached else f"{PEAK_FOUND} only up to the highest load allowed: it still rose"
        if not self._holds(confirmed):
            reason += ", but not confirmed: returns to it came out differently, or below another stage"
        return Answer(confirmed.level, confirmed.measure, reason, facts=self._facts(confirmed, reached))

    def _first(self, level: int) -> _Stage:
        return next(held for held in self._stages if held.level == level)

    def _facts(self, confirmed: _Stage, reached: bool) -> dict[str, Any]:
        first = self._first(confirmed.level)
        rate, found = self.rate(confirmed.measure), self.rate(first.measure)
        return {
            "peak_throughput": rate.mean,
            "peak_throughput_ci95": [rate.low, rate.high],
            "peak_throughput_metric": "nvme_throughput"
            if self._options.by_storage
            else "avg_throughput_tokens_per_sec",
            "peak_found_throughput": found.mean,
            "peak_storage_gib_per_sec": confirmed.measure.storage_gib_per_sec,
            "peak_confirmed": self._holds(confirmed),
            "throughput_stopped_rising": reached,
            "fewer_users_may_reach_it": self._hurried,
        }

    def so_far(self) -> Answer:
        if not self._stages:
            text = "Not concluded: no stage was held to its end."
            return Answer(None, None, text, concluded=False, stages_left=5)
        peak = self._peak()
        reason = (
            f"Not concluded: highest so far {self.line(peak.measure)} at {self._options.shown(peak.level)}."
        )
        left = 2 if self._fell else 2 + STAGES_WITHOUT_GAIN
        # The stage that found the peak cannot confirm it: only a return to it can.
        returned = [held for held in self._confirmations if held.level == peak.level]
        facts = self._facts(peak, False) | {"peak_confirmed": any(self._holds(held) for held in returned)}
        return Answer(peak.level, peak.measure, reason, concluded=False, facts=facts, stages_left=left)
