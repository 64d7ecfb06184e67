"""Why a service class missed its target or has no verdict, in words (S11)."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.result.schema import QosClass
from kvspill.texts import counted, listed


def waited(entry: QosClass) -> bool:
    """Whether the class has no verdict because its requests did not end, not because few were asked."""
    is_open = entry.sla is None or entry.sla.met is None
    # Of few requests one often waits at the end: that is not why they are few.
    return is_open and (entry.waiting_requests or 0) > entry.total_requests


def unjudged(classes: Mapping[str, QosClass]) -> list[str]:
    """Classes that had requests, also where none was completed, and have no verdict."""
    return [
        name
        for name, entry in classes.items()
        if (entry.unfinished_requests if entry.sla is None else entry.sla.met is None)
    ]


def why_unjudged(classes: Mapping[str, QosClass], names: Sequence[str]) -> str:
    """Why these have no verdict: few were asked, or those that were asked waited and did not end."""
    late = [name for name in names if waited(classes[name])]
    few = [name for name in names if name not in late]
    said = [f"too few requests of {listed(few)} for a verdict"] if few else []
    if late:
        ended = sum(classes[name].total_requests for name in late)
        waiting = sum(classes[name].waiting_requests or 0 for name in late)
        said.append(f"requests of {listed(late)} waited for a server ({ended:,} ended, {waiting:,} did not)")
    return ", and ".join(said)


def class_reason(name: str, verdict: str, requests: int, failed: int, waiting: int) -> str:
    """What no percentile of completed requests shows: those that failed or still waited; empty without."""
    left = _left(verdict, failed, waiting)
    return f"{name}: {counted(requests, 'request')} completed, {left}." if left else ""


def _left(verdict: str, failed: int, waiting: int) -> str:
    parts = [f"{failed:,} failed"] if failed else []
    parts += [f"{waiting:,} still waited at the end"] if waiting else []
    if not parts or verdict == "met":
        return ""
    return f"{', '.join(parts)}{'; these count as late' if verdict == 'missed' else ''}"


def left_of(entry: QosClass) -> str:
    """The same without the class and what completed, as a clause beside them; empty without."""
    verdict = "no verdict" if entry.sla is None else entry.sla.verdict
    return _left(verdict, entry.failed_requests, entry.waiting_requests or 0)


def promised_left(entry: Mapping[str, Any]) -> str:
    """The same of a class as a search judged it."""
    return _left(str(entry.get("verdict")), *(int(entry.get(key) or 0) for key in ("failed", "waiting")))


def promised_completed(entry: Mapping[str, Any]) -> int:
    """How many requests of a class completed where a search judged it: those that its percentile is of."""
    asked, failed, waiting = (int(entry.get(key) or 0) for key in ("requests", "failed", "waiting"))
    return asked - failed - waiting


def reason_of(name: str, entry: QosClass) -> str:
    """The same of a class as it stands in the summary."""
    verdict = "no verdict" if entry.sla is None else entry.sla.verdict
    return class_reason(
        name, verdict, entry.total_requests, entry.failed_requests, entry.waiting_requests or 0
    )
