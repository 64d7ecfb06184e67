"""Why a service class missed its target or has no verdict, in words (S11)."""

from kvspill.result.schema import QosClass
from kvspill.texts import counted


def waited(entry: QosClass) -> bool:
    """Whether the class has no verdict because its requests did not end, not because few were asked."""
    is_open = entry.sla is None or entry.sla.met is None
    return is_open and bool(entry.waiting_requests)


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
