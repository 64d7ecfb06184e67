"""The qos mode: the most users for which the storage tier's reads keep their saturation under the target."""

from typing import Any

from kvspill.measure.priorities import MIN_COMPLETIONS
from kvspill.run.search.bracket import BracketSearch, Held, Judgement
from kvspill.run.search.controller import Answer, Levels
from kvspill.run.search.options import SearchOptions
from kvspill.run.search.stage import MIN_READS, StageMeasure, saturation

UP_MAX = 2.0
DOWN_MIN = 0.5


class QosMode(BracketSearch):
    """Saturation = 1 - p95 of the window's storage reads on the idle device / their p95 in the window."""

    def __init__(self, options: SearchOptions):
        super().__init__(options)
        self._target = options.target_saturation

    def judge(self, measure: StageMeasure) -> Judgement:
        found = measure.saturation
        if found is None:
            return self._without_saturation(measure)
        text = f"saturation {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
        clear = found.high <= self._target or found.low > self._target
        return Judgement(
            passes=found.mean <= self._target, clear=clear, enough=True, waiting=False, text=text
        )

    def _without_saturation(self, measure: StageMeasure) -> Judgement:
        """Too few reads for a p95: the stage is held on. What was seen says where to go, not where to end."""
        unused = measure.stored.mean == 0
        if unused and measure.requests >= MIN_COMPLETIONS:
            return Judgement(passes=True, clear=True, enough=True, waiting=False, text="storage idle")
        rows = measure.rows
        if measure.reads and rows.unloaded_ns is not None:
            passes = saturation(rows.read_ns, rows.unloaded_ns) <= self._target
        else:
            # Bytes move, and nobody is served: there are too many already.
            passes = unused or measure.requests > 0
        only_written = measure.reads == 0 and measure.requests >= MIN_COMPLETIONS
        text = (
            "the storage is written and never read, which a saturation of reads cannot judge"
            if only_written
            else f"{measure.reads} storage reads of {measure.requests} requests, too few for a verdict"
        )
        return Judgement(passes, clear=only_written, enough=False, waiting=not only_written, text=text)

    def factor(self, measure: StageMeasure, passed: bool) -> float:
        """x1.2 and x0.8 near the target, up to twice and half where it is far away.

        Below saturation the utilisation grows with the users, above it the latency does: either says how
        far the target is on a device that shares its time.
        """
        if measure.saturation is None and measure.stored.mean > 0:
            return self._options.up if passed else self._options.down
        found = 0.0 if measure.saturation is None else measure.saturation.mean
        if passed:
            far = self._target / found if found > 0 else UP_MAX
            return max(self._options.up, min(UP_MAX, far))
        return min(self._options.down, max(DOWN_MIN, (1 - found) / (1 - self._target)))

    async def search(self, levels: Levels) -> Answer:
        held = await self.find(levels)
        if held is None:
            return self.lowest_failed(f"Even the lowest load exceeds the target saturation {self._target:g}")
        if not held.judgement.enough:
            reason = f"No verdict: {held.judgement.text} (a p95 needs {MIN_READS} reads)."
            return Answer(None, held.measure, reason, False, self.facts(held), stages_left=2)
        if held.level >= self._options.highest:
            reason = f"The highest load allowed stays below the target saturation {self._target:g}"
        else:
            reason = f"Largest load with saturation <= {self._target:g}, confirmed: {self.evidence(held)}"
        return Answer(held.level, held.measure, reason, facts=self.facts(held))

    def line(self, measure: StageMeasure) -> str:
        return f"{super().line(measure)}, target {self._target:g}"

    def facts(self, held: Held) -> dict[str, Any]:
        return {
            "target_saturation": self._target,
            "target_met": held.judgement.passes if held.judgement.enough else None,
            "next_level_that_failed": self.next_failed(held),
        }
