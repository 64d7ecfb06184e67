"""The policy of a search: holds one level after another and keeps the account of every step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvspill.records import NS_PER_SEC
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings import certainty, loads
from kvspill.run.search.all_ranks import AllRanks
from kvspill.run.search.lever import Lever
from kvspill.run.search.options import SearchOptions
from kvspill.run.search.qosmonitor import inversions, qos_block, without_verdict
from kvspill.run.search.stage import StageMeasure
from kvspill.world import World

BATCHES = 10
PATIENCE = 3
"""While it says so, a window may last so many times as long."""
CONFIRM_FACTOR = 2
"""The last stage is held this many times as long as the others: its window is the result."""
SETTLE_STAGES_MAX = 2
"""Settling takes at most this many times the longest stage; whatever hasn't settled by then is marked."""

ROUNDS_OF_KEPT = 2
"""A load that keeps its target has surely settled after so many of its rounds."""

DESCEND = "descend"
"""The action of a stage that asks whether fewer users do as well: no backlog of more may help them."""


_WHY_NOW = {
    "confirm": ", the largest that passed is measured again to confirm it",
    "recheck": ", measured again, as chance may have decided",
    "scale_down": ", more than that was too much",
}


class TimeUp(Exception):  # noqa: N818 - a condition, not a failure
    """The load ends before the stage could be measured."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found."""

    level: int | None
    """None where no level was found that can be named."""
    measure: StageMeasure | None
    reason: str
    concluded: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    """Further figures of the last entry of autoscaling_stats."""
    stages_left: int = 0
    """Where it is not concluded: at least so many stages were still to be held."""


class Mode(Protocol):
    """One way to search. `search` holds stages until it knows; `so_far` answers where the time is up."""

    async def search(self, levels: "Levels") -> Answer: ...

    def so_far(self) -> Answer: ...

    def line(self, measure: StageMeasure) -> str:
        """A few words about the present window, for the live line and the steps."""
        ...

    def judged(self, measure: StageMeasure) -> dict[str, bool]:
        """Whether a window passes, for its step; nothing where a mode judges no single window."""
        ...


class Levels:
    """What a mode works with: one call holds a level until its window says enough."""

    def __init__(self, world: World, load: AllRanks, options: SearchOptions):
        self._world = world
        self._load = load
        self._lever = load.lever
        self._monitor = load.monitor
        self._options = options
        self._pace = options.pace
        self._round_ns = 0.0
        self._settling_ns = 0
        self._sent_away = 0
        self.steps: list[dict[str, Any]] = []
        self.status = "starting"
        self.line: Callable[[StageMeasure], str] = lambda _measure: ""
        self.judged: Callable[[StageMeasure], dict[str, bool]] = lambda _measure: {}

    async def hold(
        self,
        level: int,
        action: str,
        reason: str,
        done: Callable[[StageMeasure], bool],
        patient: Callable[[StageMeasure], bool] = lambda _measure: False,
        hopeless: Callable[[StageMeasure], bool] = lambda _measure: False,
    ) -> StageMeasure:
        """Hold a level: settle, then measure until `done`, at most `longest` intervals, more while `patient`.

        A `hopeless` level need not settle.
        """
        started_ns = self._world.now_ns()
        settled = await self._settle(level, action, hopeless)
        self._settling_ns = max(self._settling_ns, self._world.now_ns() - started_ns)
        self._load.open(self._world.now_ns())
        factor = CONFIRM_FACTOR if action == "confirm" else 1
        shortest, longest = self._pace.shortest * factor, self._pace.longest * factor
        intervals = 0
        while True:
            if intervals >= self._pace.shortest and not self._time_for_another():
                measure = self._monitor.measure(self._world.now_ns(), BATCHES)
                break
            await self._tick()
            intervals += 1
            if self._world.virtual and intervals < shortest:
                continue  # Nobody looks at the live line.
            measure = self._monitor.measure(self._world.now_ns(), BATCHES)
            limit = longest * PATIENCE if patient(measure) else max(longest, intervals)
            seconds = [f"{count * self._pace.interval_ns / NS_PER_SEC:.3g} s" for count in (intervals, limit)]
            why = _why_longer(action, patient=patient(measure))
            self._say(level, f"{seconds[0]} measured, up to {seconds[1]}{why}, {self.line(measure)}")
            if intervals >= limit or (intervals >= shortest and done(measure) and not patient(measure)):
                break
        self._load.close(self._world.now_ns())
        self._note_round()
        self.steps.append(self._step(level, action, reason, measure, started_ns, settled))
        return measure

    def _step(
        self, level: int, action: str, reason: str, measure: StageMeasure, started_ns: int, settled: bool
    ) -> dict[str, Any]:
        options, now_ns = self._options, self._world.now_ns()
        return {
            "time_seconds": (now_ns - options.start_ns) / NS_PER_SEC,
            self._lever.name: self._lever.value(level),
            "action": action,
            "reason": reason,
            **measure.to_dict(),
            **self.judged(measure),
            "stage_seconds": (now_ns - started_ns) / NS_PER_SEC,
            "settled": settled,
            "sent_away": self._sent_away,
            "qos": qos_block(measure, options.sla_ms),
            "no_verdict": without_verdict(measure),
            "priority_inversions": inversions(measure),
        }

    async def _settle(self, level: int, action: str, hopeless: Callable[[StageMeasure], bool]) -> bool:
        """Change the load and let it settle: one mean round of a user, an interval at least (three after
        users left). False where that takes longer than the run can wait, or than it could help."""
        fewer = level < self._lever.level
        self._load.begin(self._world.now_ns())
        await self._empty(level, action)
        if level != self._lever.level:
            self._load.set(level)
        self._load.let_in()
        started_ns = self._world.now_ns()
        least = self._pace.cooldown if fewer else 1
        most_ns = SETTLE_STAGES_MAX * self._pace.longest * self._pace.interval_ns
        while True:
            self._say(level, f"settling{_WHY_NOW.get(action, '')}")
            await self._tick()
            now_ns = self._world.now_ns()
            elapsed_ns = now_ns - started_ns
            early = now_ns < self._options.first_stage_ns or elapsed_ns < least * self._pace.interval_ns
            # A user that leaves still holds a server, for which the others would wait.
            if not early and not self._load.leaving and self._has_settled(elapsed_ns):
                return True
            if not early and (elapsed_ns >= most_ns or self._in_vain(elapsed_ns, hopeless)):
                return False

    def _in_vain(self, elapsed_ns: int, hopeless: Callable[[StageMeasure], bool]) -> bool:
        """Whether so many wait that the level must fail, though whoever keeps the target had two rounds.

        Waiting users ask nothing new: what came at once with the load is worked off within one such round.
        """
        if self._load.leaving or elapsed_ns < ROUNDS_OF_KEPT * self._options.kept_round_ns:
            return False
        return hopeless(self._monitor.measure(self._world.now_ns(), BATCHES))

    async def _empty(self, level: int, action: str) -> None:
        """Open arrivals: let nobody in until nobody of the stage before is left.

        More users only prolong a congestion, and a load that is borne from an empty start may never
        come out of one. A confirmation of the level that was just held is its continuation.
        """
        self._sent_away = 0
        if not self._options.drain or not self.steps:
            return
        if action == "confirm" and level == self._lever.level:
            return
        if self._options.mode == "capacity" and action != DESCEND:
            # A backlog keeps the device busy, which is all that a search for the highest throughput needs.
            return
        self._sent_away = self._load.send_away()
        while self._load.in_service:
            self._say(level, f"waiting for {self._load.in_service} requests of the stage before")
            await self._tick()
        self._load.begin(self._world.now_ns())

    def _has_settled(self, elapsed_ns: int) -> bool:
        """One mean round has passed since the load changed."""
        round_ns = self._monitor.mean_round_ns(self._options.with_wait)
        # Those who are served first had the shortest rounds: the stage before says how long one can be.
        return round_ns is not None and elapsed_ns >= max(round_ns, min(self._round_ns, 2 * round_ns))

    def _note_round(self) -> None:
        round_ns = self._monitor.mean_round_ns(self._options.with_wait)
        self._round_ns = round_ns if round_ns is not None else self._round_ns

    async def _tick(self) -> None:
        if not self._time_for_another():
            raise TimeUp
        await self._world.sleep_ns(self._pace.interval_ns)
        await self._load.caught_up()

    def _time_for_another(self) -> bool:
        """Whether another interval ends before the load does: what ends with it can't be closed any more."""
        return self._world.now_ns() + self._pace.interval_ns < self._options.end_ns

    def time_for(self, stages: int) -> bool:
        """Whether so many stages of the longest kind, and a confirmation, surely fit into what is left."""
        settling_ns = (stages + 1) * max(self._settling_ns, self._pace.interval_ns)
        needed_ns = (stages + CONFIRM_FACTOR) * self._pace.longest * self._pace.interval_ns + settling_ns
        return self._world.now_ns() + needed_ns < self._options.end_ns

    def _say(self, level: int, text: str) -> None:
        # Where there is one level only, nothing is searched for.
        search = "search: " if self._options.lowest < self._options.highest else ""
        self.status = f"{search}{self._lever.text(level)}: {text}"


def _why_longer(action: str, *, patient: bool) -> str:
    """Why a window may last longer than others do."""
    if action == "confirm":
        return " to confirm it with few requests" if patient else " to confirm it"
    return " as requests are few" if patient else ""


class Search:
    """The policy of a search: runs a mode, and turns what it found into autoscaling_stats."""

    def __init__(self, mode: Mode, levels: Levels, lever: Lever, options: SearchOptions):
        self._mode = mode
        self._levels = levels
        self._lever = lever
        self._options = options
        self._answer: Answer | None = None
        levels.line, levels.judged = mode.line, mode.judged

    async def run(self, finish: Callable[[], None]) -> None:
        """Search; `finish` ends the load once the answer is known."""
        try:
            self._answer = await self._mode.search(self._levels)
        except TimeUp:
            return
        finish()

    @property
    def status(self) -> str:
        """One line about what is going on."""
        return self._levels.status

    def entries(self, interrupted: str | None = None) -> list[dict[str, Any]]:
        """autoscaling_stats: every step, the answer last; interrupted says why the load ended early."""
        answer = self._answer or self._mode.so_far()
        missing_seconds = None
        if not answer.concluded and interrupted is None:
            missing_seconds = self._missing_seconds(answer)
        missing = f"The run was {interrupted}."
        if missing_seconds is not None:
            missing = f"The time was too short: at least {missing_seconds:.0f} s more were needed."
        measured = {} if answer.measure is None else answer.measure.to_dict()
        last_seconds = self._levels.steps[-1]["time_seconds"] if self._levels.steps else 0.0
        final = {
            "time_seconds": last_seconds,
            self._lever.name: None if answer.level is None else self._lever.value(answer.level),
            "action": "stop",
            "reason": answer.reason if answer.concluded else f"{answer.reason.rstrip('.')}. {missing}",
            "known": answer.reason,
            "mode": self._options.mode,
            "concluded": answer.concluded,
            "missing_seconds": missing_seconds,
            **measured,
            **answer.facts,
        }
        if answer.measure is not None:
            final["qos"] = qos_block(answer.measure, self._options.sla_ms)
            final["no_verdict"] = without_verdict(answer.measure)
            final["priority_inversions"] = inversions(answer.measure)
        return [*self._levels.steps, final]

    def cautions(self, steps: Sequence[Mapping[str, Any]]) -> list[Caution]:
        """What a reader of the answer must know."""
        last, found = steps[-1], []
        if not last["concluded"]:
            missing = last["missing_seconds"]
            longer = "Let it run to its end."
            if missing is not None:
                longer = f"Raise --duration by {missing:.0f} s, or start nearer with --num-users."
            found.append(certainty.AUTOSCALING_INCONCLUSIVE.of(reason=last["reason"], remedy=longer))
        if last.get("no_verdict"):
            found.append(certainty.NO_VERDICT.of(classes=", ".join(last["no_verdict"])))
        if any(not step.get("settled", True) for step in steps):
            found.append(certainty.STAGE_NOT_SETTLED.of())
        inverted = last.get("priority_inversions", ())
        return found + [loads.PRIORITY_INVERSION.of(text=text) for text in inverted]

    def _missing_seconds(self, answer: Answer) -> float:
        """How much longer the run would have had to be, by the stages held so far."""
        lengths = [float(step["stage_seconds"]) for step in self._levels.steps]
        pace = self._options.pace
        settling_ns = max(2 * pace.interval_ns, self._options.round_ns)
        known = (settling_ns + pace.shortest * pace.interval_ns) / NS_PER_SEC
        used = self._levels.steps[-1]["time_seconds"] if self._levels.steps else 0.0
        left = (self._options.end_ns - self._options.start_ns) / NS_PER_SEC - used
        # A stage that was begun when the time was up takes longer than what it had.
        typical = sum(lengths) / len(lengths) if lengths else max(known, left)
        return max(typical, answer.stages_left * typical - left)
