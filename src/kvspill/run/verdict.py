"""What the steps of a search say of the users that are asked about: yes, no, or neither."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.result.answer import Status, lever_of, standstill
from kvspill.result.schema import Result

ABOVE = 1.5
"""A load this many times the limit should fail clearly, and sooner than one far above it."""

Level = int | float
"""Users, or the speed of a recording."""
Steps = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Bracket:
    """What a search knows: the most users that kept the target, the fewest that did not."""

    passed: Level | None
    failed: Level | None
    concluded: bool

    @property
    def about(self) -> Level | None:
        """The limit as far as it is known; 0 where not even one user keeps the target."""
        if self.passed is not None:
            return self.passed
        return 0 if self.failed == 1 else None


def read_bracket(steps: Steps) -> Bracket:
    """What the steps of a search say; its answer comes last and counts most, as all windows judge it."""
    if not steps:
        return Bracket(None, None, False)
    last, levels = steps[-1], list(_levels(steps))
    failed = [found["level"] for found in levels if not found["passes"] and _counts(found)]
    passed = [found["level"] for found in levels if found["passes"] and found["enough"]]
    lever = lever_of(last)
    if last.get("concluded") and last.get("passes") and last[lever] is not None:
        above = last.get("next_level_that_failed")
        return Bracket(last[lever], above, True)
    high = min(failed, default=None)
    low = max((level for level in passed if high is None or level < high), default=None)
    return Bracket(low, high, bool(last.get("concluded")))


def judge(result: Result, bracket: Bracket, users: int) -> Status:
    """Whether so many users keep the target.

    Where their own windows were measured, these answer: a few heavy users among fewer ones may fail
    where more users keep the target. Else a failure of fewer answers for more.
    """
    if result.incomplete or result.faulty:
        return Status.INVALID
    asked = level_of(result.autoscaling_stats, users)
    if asked is not None and _counts(asked):
        kept, failed = asked["passes"] and _firm(asked), not asked["passes"] and _firm(asked)
        failed = failed or (not kept and _far_below_failed(result.autoscaling_stats, users))
    else:
        failed = bracket.failed is not None and bracket.failed <= users
        kept = bracket.passed is not None and bracket.passed >= users
    if failed:
        return Status.NO
    return Status.YES if kept and standstill(result) is None else Status.UNDECIDED


def at_the_limit(result: Result, users: int) -> bool:
    """Whether so many users kept the target in some windows and not in others, without a clear majority."""
    asked = level_of(result.autoscaling_stats, users)
    return asked is not None and _counts(asked) and _windows(asked) > 1 and not _firm(asked)


def by_most(seeds: Mapping[int, Status]) -> Status:
    """What more than half of the seeds answer; no verdict where neither yes nor no has so many."""
    answers = list(seeds.values())
    for status in (Status.YES, Status.NO):
        if 2 * answers.count(status) > len(answers):
            return status
    return Status.UNDECIDED


def each_seed(seeds: Mapping[int, Status]) -> str:
    """What each of them answers, in words."""
    return ", ".join(f"{status.value} with seed {seed}" for seed, status in seeds.items())


def rests_on(result: Result, bracket: Bracket, users: int, status: Status) -> Mapping[str, Any] | None:
    """The level that an answer rests on, as all its windows together judge it; None where there is none."""
    asked = level_of(result.autoscaling_stats, users)
    if status is Status.UNDECIDED:
        return asked if at_the_limit(result, users) else None
    if status is Status.YES:
        return asked if asked is not None else level_of(result.autoscaling_stats, bracket.passed)
    if status is not Status.NO:
        return None
    least = level_of(result.autoscaling_stats, bracket.failed)
    if asked is None or asked["passes"]:
        return least
    # The users asked about are the best evidence, unless they had too few requests and others enough.
    better = least is not None and _firm(least) and least["enough"]
    return asked if _firm(asked) and (asked["enough"] or not better) else least


def level_of(steps: Steps, level: Level | None) -> Mapping[str, Any] | None:
    """A level as all its windows together judge it; None where they were not kept, or none was held."""
    kept = steps[-1].get("levels", ()) if steps else ()
    return next((found for found in kept if found["level"] == level), None)


def _levels(steps: Steps) -> Iterator[Mapping[str, Any]]:
    """All windows of a level judge it; a search that keeps another figure has its single ones."""
    *held, last = steps
    lever = lever_of(last)
    yield from last.get("levels") or ({**step, "level": step[lever]} for step in held)


def _counts(found: Mapping[str, Any]) -> bool:
    """Whether a level has a say: enough requests, or a failure that needs no more of them."""
    return bool(found["enough"] or (found["clear"] and not found["passes"]))


def _windows(found: Mapping[str, Any]) -> int:
    return int(found.get("windows", 1))


def _firm(found: Mapping[str, Any]) -> bool:
    """Whether another look would say the same: it is clear, or several windows agree."""
    passed = found.get("windows_passed", 0)
    return bool(found["clear"]) or (_windows(found) > 1 and passed in (0, _windows(found)))


def _far_below_failed(steps: Steps, users: int) -> bool:
    """Whether so few users failed clearly that no chance makes these keep the target."""
    levels = _levels(steps)
    return any(item["clear"] and not item["passes"] and ABOVE * item["level"] <= users for item in levels)
