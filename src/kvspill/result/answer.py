"""The answer of a run in a few words: the verdict, the bottleneck, what would help. All views use it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvspill.measure.priorities import MIN_COMPLETIONS
from kvspill.records import QoS
from kvspill.result.assessment import FAIL, NO_TARGET, PASS
from kvspill.result.bottleneck import Bottleneck, bottleneck, missed_classes
from kvspill.result.classes import (
    LATE_SHARE,
    asked_of,
    late_text,
    surely_late,
    unjudged,
    waited,
    why_unjudged,
)
from kvspill.result.load import does, too_much, who
from kvspill.result.ranking import RANK_FAILED, faults_text
from kvspill.result.schema import QosClass, Result
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.devices import MEMORY_DIRECTORY, STORAGE_STALLED
from kvspill.result.warnings.kind import Severity
from kvspill.result.warnings.loads import OVERLOAD, STALLED
from kvspill.texts import counted, ended_by, listed

_RESERVE = 1.25
"""How much longer than by the estimate: the next run may complete fewer requests in the same time."""


class Status(StrEnum):
    """Whether the targets were kept."""

    YES = "yes"
    NO = "no"
    FOUND = "found"
    """A search has its answer."""
    UNDECIDED = "no verdict"
    """Nothing was judged: no target, too few requests, or an overload."""
    INVALID = "invalid"
    """Something failed, or the run did not get to its end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run answers."""

    status: Status
    verdict: str
    """Yes, no or why neither, in one sentence."""
    longer: str
    """What gives a verdict where requests are too few for one, as an instruction; empty elsewhere."""
    bottleneck: Bottleneck
    helps: str
    """What would help, as an instruction."""
    grave: tuple[Caution, ...]
    """Warnings that put the figures in doubt, the gravest first."""
    notes: tuple[Caution, ...]
    """Warnings that stand beside the figures, but for what the command itself chose."""

    @property
    def line(self) -> str:
        """The first line of every view."""
        return f"{self.verdict} {self.longer}".rstrip()

    @property
    def because(self) -> str:
        """The bottleneck, in one sentence."""
        return self.bottleneck.sentence


def answer(result: Result) -> Answer:
    """The answer of this result."""
    status, text = _verdict(result)
    verdict, found = f"{status.value.upper()}{_label(result)}: {text}", bottleneck(result)
    asked = result.question
    if asked is not None:
        status, verdict = Status(asked.answer), asked.sentence
    grave = [item for item in result.warnings if item.severity != Severity.NOTE]
    grave.sort(key=lambda item: item.severity != Severity.INVALID)
    helps = (_higher(result, status) or found.helps) if asked is None else asked.helps
    if is_cut_short(result):
        helps = "Let it run to its end."
    elif status in (Status.YES, Status.UNDECIDED) and _none_late(result):
        helps = "Nothing; no request was late."
    return Answer(
        status=status,
        verdict=verdict,
        longer=_longer(result) if status is Status.UNDECIDED and asked is None else "",
        bottleneck=found,
        helps=helps,
        grave=tuple(grave),
        notes=tuple(item for item in result.warnings if item not in grave and not item.chosen),
    )


def is_cut_short(result: Result) -> bool:
    """Whether a run was ended so early that nothing can be advised by what it saw."""
    few = result.requests_completed < MIN_COMPLETIONS
    return result.interrupted is not None and not result.faulty and few


def _none_late(result: Result) -> bool:
    """Whether every request of a run that latency targets judge was within them, as far as is known."""
    health, classes = result.summary.storage_health, result.summary.qos_metrics.values()
    codes = {item.code for item in result.warnings}
    if result.trials is not None and result.trials.count > 1:
        # The classes are those of one of the trials.
        return False
    if result.autoscaling_stats or codes & {OVERLOAD.code, STORAGE_STALLED.code, STALLED.code}:
        return False
    if health is not None and health.performance_profile == "throughput":
        return False
    judged = [entry.sla for entry in classes if entry.sla is not None]
    return bool(judged) and not any(sla.violations for sla in judged)


def in_memory(result: Result) -> bool:
    """Whether the storage tier lay in memory: then nothing here is a verdict on a drive."""
    return result.warning(MEMORY_DIRECTORY.code) is not None


def promise_of(result: Result) -> dict[str, Any] | None:
    """The latency that a search keeps, with what came of each class; None where it keeps another figure.

    Of a question it is the load that the answer rests on.
    """
    if result.question is not None and result.question.judged is not None:
        return result.question.judged
    last = result.autoscaling_stats[-1] if result.autoscaling_stats else {}
    found = last.get("slo")
    return found if isinstance(found, dict) and isinstance(found.get("classes"), dict) else None


def _judged(result: Result) -> dict[str, QosClass]:
    """Service classes that have a verdict (S11)."""
    return {
        name: entry
        for name, entry in result.summary.qos_metrics.items()
        if entry.sla is not None and entry.sla.met is not None
    }


def _label(result: Result) -> str:
    """How the verdict must be called where it is not of a drive that was measured."""
    if result.simulated:
        return " (simulated)"
    if in_memory(result):
        return " (in memory, not a drive)"
    return " (modelled tiers)" if result.honesty.modelled_tiers else ""


def _verdict(result: Result) -> tuple[Status, str]:
    faults = faults_text(result)
    if faults is not None:
        return Status.INVALID, f"the result is faulty and is not ranked: {faults}."
    if result.incomplete:
        return Status.INVALID, f"the run ended early ({ended_by(result.interrupted or RANK_FAILED)})."
    if not result.requests_completed:
        return Status.UNDECIDED, "no request completed in the measured window."
    status, text = _kept(result)
    if status not in (Status.YES, Status.FOUND):
        return status, text
    still = standstill(result)
    return (status, text) if still is None else (Status.UNDECIDED, f"{still}.")


def seen_with(result: Result) -> str:
    """Of a question, the users with whom the cause was seen, where these are others than were asked about."""
    asked, users = result.question, result.window.users
    return "" if asked is None or users in (None, asked.users) else f" with {counted(users or 0, 'user')}"


def standstill(result: Result) -> str | None:
    """What stood still for so long that nothing is answered with yes; None where nothing did."""
    return next((kind.means for kind in (STORAGE_STALLED, STALLED) if result.warning(kind.code)), None)


def _kept(result: Result) -> tuple[Status, str]:
    """Whether the targets were kept, by the figures alone."""
    if result.autoscaling_stats:
        return _search(result)
    health = result.summary.storage_health
    if health is not None and health.performance_profile == "throughput":
        return _throughput(result)
    return _classes(result)


def _search(result: Result) -> tuple[Status, str]:
    """What a search for the load found."""
    last = result.autoscaling_stats[-1]
    level = last.get(lever_of(last))
    reason = str(last.get("reason", "")).rstrip(".")
    if level is None or not last.get("concluded", True):
        known = reason.removeprefix("Not concluded: ")
        return Status.UNDECIDED, f"the search did not conclude{': ' if known != reason else '. '}{known}."
    if "users" in last:
        what = f"{counted(int(level), 'user')} of {result.config.get('model')}"
    else:
        what = f"{level:,g} times the trace's speed"
    if last.get("target_met") is False:
        return Status.NO, f"{reason}."
    if last.get("target_met", True) is None:
        why = reason.removeprefix("No verdict: ")
        return Status.UNDECIDED, f"the search ended at {what}. {why[:1].upper()}{why[1:]}."
    classes = set(last.get("qos") or ())
    if last.get("mode") == "qos" and classes and classes <= set(last.get("no_verdict") or ()):
        thin = "no service class had the 50 requests that a verdict on its latency needs"
        return Status.UNDECIDED, f"the search ended at {what}, but {thin}. {reason}."
    missed = missed_in_search(result)
    if missed and last.get("mode") == "qos":
        # The saturation of the storage's reads is another criterion than the targets of the users (S11).
        return Status.FOUND, f"{what}. {reason}. These users miss the latency target of {listed(missed)}."
    return Status.FOUND, f"{what}. {reason}."


def _higher(result: Result, status: Status) -> str:
    """What a search lacked that ended at the most users allowed; empty elsewhere."""
    most = result.config.get("max_users")
    if status is not Status.FOUND or most is None or result.autoscaling_stats[-1].get("users") != most:
        return ""
    return "" if missed_in_search(result) else "Give a higher --max-users to find how many can be held."


def lever_of(step: Mapping[str, Any]) -> str:
    """What a search turns, as its steps call it: users, or the speed of a recording."""
    return "users" if "users" in step else "trace_speedup"


def missed_in_search(result: Result) -> list[str]:
    """Service classes that missed their target where a search for something else ended (S11)."""
    last = result.autoscaling_stats[-1] if result.autoscaling_stats else {}
    classes = {} if last.get("slo") else last.get("qos") or {}
    return [name for name, entry in classes.items() if entry.get("sla_verdict") == "missed"]


def _throughput(result: Result) -> tuple[Status, str]:
    health = result.summary.storage_health
    assert health is not None, "the caller looked"
    rate = result.number("avg_throughput_tokens_per_sec") or 0.0
    target = health.criteria[0].target if health.criteria else None
    said = f"{does(result, 'get')} {rate:,.0f} tok/s"
    if health.overall_status == NO_TARGET or target is None:
        return Status.UNDECIDED, f"{said}; without --min-tokens-per-sec there is no target."
    verdicts = {PASS: Status.YES, FAIL: Status.NO}
    return verdicts.get(health.overall_status, Status.UNDECIDED), f"{said}, the target is {target:,g} tok/s."


def _classes(result: Result) -> tuple[Status, str]:
    """By the service classes' latency targets (S11)."""
    judged = _judged(result)
    missed = missed_classes(result)
    classes = result.summary.qos_metrics
    still_open = unjudged(classes)
    why = why_unjudged(classes, still_open)
    surely = _surely_too_many(result, still_open)
    if missed:
        rest = f" ({why}{f'; {surely}' if surely else ''})" if still_open else ""
        return Status.NO, f"{does(result, 'miss')} the latency target of {listed(missed)}{rest}."
    if judged and still_open:
        why += f" ({surely})" if surely else ""
        return Status.UNDECIDED, f"{why}; {listed(list(judged))} within the target."
    if judged:
        every = len(judged) == len(QoS)
        kept = "every latency target" if every else f"the latency target of {listed(list(judged))}"
        return Status.YES, f"{does(result, 'keep')} {kept}."
    if result.warning(OVERLOAD.code):
        return Status.UNDECIDED, f"{too_much(result)}."
    if any(waited(entry) for entry in classes.values()):
        return Status.UNDECIDED, f"{why} ({who(result)})."
    seen = late_text(classes, still_open) or "no request was judged"
    needs = f"but a verdict needs {MIN_COMPLETIONS} of a class ({who(result)})"
    return Status.UNDECIDED, f"{seen}, {needs}.{f' {surely[:1].upper()}{surely[1:]}.' if surely else ''}"


def _surely_too_many(result: Result, names: Sequence[str]) -> str:
    """What follows where most requests of a class were late that has too few for a verdict; else empty.

    It is the test by which `kvspill can` says no. A run gives no verdict on so few (S11).
    """
    sure = [name for name in names if surely_late(result.summary.qos_metrics[name])]
    if not sure:
        return ""
    which = f" of {listed(sure)}" if len(sure) < len(names) else ""
    allowed = f"surely more{which} than the {LATE_SHARE:.0%} allowed"
    return f"that is {allowed}: a longer run will most likely say no"


def _longer(result: Result) -> str:
    """How long a run should be in which every class has its requests; empty where none has too few."""
    classes, health = result.summary.qos_metrics, result.summary.storage_health
    by_throughput = health is not None and health.performance_profile == "throughput"
    if by_throughput or result.autoscaling_stats or result.warning(OVERLOAD.code) or standstill(result):
        return ""
    few = [asked_of(classes[name]) for name in unjudged(classes) if not waited(classes[name])]
    seconds, least = result.config.get("duration"), min((count for count in few if count), default=None)
    if result.incomplete or least is None or least >= MIN_COMPLETIONS:
        return ""
    if seconds is None or result.config.get("max_requests"):
        return "Give more --max-requests." if result.config.get("max_requests") else ""
    needed = math.ceil(_RESERVE * float(seconds) * MIN_COMPLETIONS / least / 10) * 10
    return f"Give --duration {needed}."
