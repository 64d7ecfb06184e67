"""Answers to questions, as the tests of their text want them."""

from typing import Any

from kvspill.config import Config
from kvspill.report.reply.text import lines
from kvspill.result.answer import Status
from kvspill.result.schema import Result
from kvspill.run.asking import Reply
from kvspill.run.bandwidth import Bandwidth
from kvspill.run.verdict import Bracket
from unit.result.sample import built


def replied(result: Result, **more: Any) -> list[str]:
    """The text of a no that rests on this result."""
    probe = Bandwidth(2.36, 1.2, "a probe")
    return list(lines(Reply(Status.NO, 5, Config(), result, Bracket(2, 3, True), probe, None, None, **more)))


def of_level(users: int, **classes: tuple[int, int, float | None, str]) -> Result:
    """A result whose search failed clearly at one level: requests, late ones, p95 and verdict by class."""
    targets = {"interactive": 50.0, "responsive": 300.0, "batch": 1000.0}
    judged = {
        name: {
            "requests": requests,
            "violations": late,
            "actual_ms": p95_ms,
            "target_ms": targets[name],
            "verdict": verdict,
        }
        for name, (requests, late, p95_ms, verdict) in classes.items()
    }
    facts = {"passes": False, "clear": True, "enough": False}
    level = {**facts, "level": users, "latency": "added", "percentile": 95.0, "windows": 2, "classes": judged}
    last = {**facts, "users": None, "concluded": False, "levels": [level]}
    return built().model_copy(update={"autoscaling_stats": [{**facts, "users": users}, last]})
