"""Why a service class missed its target or has no verdict, in words (S11)."""

from collections.abc import Mapping, Sequence

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
    parts = [f"{failed:,} failed"] if failed else []
    parts += [f"{waiting:,} still waited at the end"] if waiting else []
    if not parts or verdict == "met":
        return ""
    said = f"{name}: {counted(requests, 'request')} completed, {', '.join(parts)}"
    return f"{said}; these count as late." if verdict == "missed" else f"{said}."


def reason_of(name: str, entry: QosClass) -> str:
    """The same of a class as it stands in the summary."""
    verdict = "no verdict" if entry.sla is None else entry.sla.verdict
    return class_reason(
        name, verdict, entry.total_requests, entry.failed_requests, entry.waiting_requests or 0
    )
