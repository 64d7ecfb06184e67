"""Why a service class missed its target or has no verdict, in words (S11)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kvspill.measure import priorities
from kvspill.result.schema import QosClass
from kvspill.texts import counted, listed

LATENCIES = {
    "added": "what queue and storage add to generation",
    "end-to-end": "end-to-end, generation included",
    "queue-wait": "the wait in the queue",
    "storage-ttft": "queue wait and the cache's work before the first token",
}
"""What a target may be of (--slo-latency), in words."""
NEAR_SHARE = 0.1
"""So near to its target another measurement may find a percentile on the other side of it."""
LATE_SHARE = 0.05
"""A p95 is held where no larger share of the requests is above it."""


def goes_towards(target_ms: float, windows_ms: Sequence[float | None]) -> bool:
    """Whether each window came nearer to the target than the one before, and the last nearly reached it."""
    known = [value for value in windows_ms if value is not None]
    steps = [after - before for before, after in pairwise(known)]
    if not steps or abs(known[-1] - target_ms) > 2 * NEAR_SHARE * target_ms:
        return False
    side = 1 if known[0] <= target_ms else -1
    return all(side * step > 0 for step in steps)


def is_near(target_ms: float, actual_ms: float, windows_ms: Sequence[float | None]) -> bool:
    """Whether a class is so near to its target, or on its way there, that another run may say otherwise."""
    return abs(actual_ms - target_ms) <= NEAR_SHARE * target_ms or goes_towards(target_ms, windows_ms)


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


def in_doubt(entry: QosClass) -> bool:
    """Whether a class without a verdict had more late requests than one that keeps its target."""
    sla = entry.sla
    return sla is not None and sla.met is None and sla.violations > LATE_SHARE * asked_of(entry)


def surely_late(entry: QosClass) -> bool:
    """Whether so many requests of a class without a verdict were late that the load is surely too high.

    Searches turn back at such a load, too, before a class has the requests that a verdict on it needs.
    """
    asked = asked_of(entry)
    if entry.sla is None or entry.sla.met is not None or waited(entry):
        return False
    return priorities.surely_late(entry.sla.violations, asked, LATE_SHARE)


def why_unjudged(classes: Mapping[str, QosClass], names: Sequence[str]) -> str:
    """Why these have no verdict: few were asked, or those that were asked waited and did not end."""
    late = [name for name in names if waited(classes[name])]
    few = [name for name in names if name not in late]
    needed = f"fewer than {priorities.MIN_COMPLETIONS}"
    told = f"too few requests of {listed(few)} for a verdict ({needed}){_few_late(classes, few)}"
    said = [told] if few else []
    if late:
        ended = sum(classes[name].total_requests for name in late)
        waiting = sum(classes[name].waiting_requests or 0 for name in late)
        left = f"{waiting:,} of {ended + waiting:,} to the end"
        said.append(f"requests of {listed(late)} waited for a server, {left}")
    return ", and ".join(said)


def asked_of(entry: QosClass) -> int:
    """How many requests of a class are known to have kept its target or not."""
    return entry.total_requests + entry.failed_requests + (entry.waiting_requests or 0)


def _late_of(classes: Mapping[str, QosClass], names: Sequence[str]) -> tuple[int, int]:
    """How many requests of these classes were late, all of them together, and of how many."""
    entries = [classes[name] for name in names if classes[name].sla is not None]
    return sum(entry.sla.violations for entry in entries if entry.sla), sum(map(asked_of, entries))


def late_text(classes: Mapping[str, QosClass], names: Sequence[str]) -> str:
    """The same in words; empty where nothing is known of any."""
    late, asked = _late_of(classes, names)
    if late == asked:
        return {0: "", 1: "the only request was late"}.get(asked, f"all {asked:,} requests were late")
    some = f"{late:,}" if late else "none"
    return f"{some} of {counted(asked, 'request')} {'was' if late < 2 else 'were'} late"


def _few_late(classes: Mapping[str, QosClass], names: Sequence[str]) -> str:
    """The same as an aside; nothing where none was late."""
    late, asked = _late_of(classes, names)
    if not late:
        return ""
    return f", all {asked:,} late" if late == asked > 1 else f", {late:,} of {asked:,} late"


def _left(verdict: str, failed: int, waiting: int, why: str = "these count as late") -> str:
    """What no percentile of completed requests shows: those that failed or still waited; empty without."""
    parts = [f"{failed:,} failed"] if failed else []
    parts += [f"{waiting:,} still waited at the end"] if waiting else []
    if not parts or verdict == "met":
        return ""
    return f"{', '.join(parts)}{f'; {why}' if verdict == 'missed' else ''}"


def left_of(entry: QosClass) -> str:
    """The same of a class as it stands in the summary, where one failure breaks the promise (S13)."""
    verdict, waiting = "no verdict" if entry.sla is None else entry.sla.verdict, entry.waiting_requests or 0
    if entry.failed_requests:
        why = "a class with failed requests misses its target"
        return _left(verdict, entry.failed_requests, waiting, why)
    return _left(verdict, 0, waiting)


def reason_of(name: str, entry: QosClass) -> str:
    """The same as a sentence."""
    return _sentence(name, entry.total_requests, left_of(entry))


def promised_left(entry: Mapping[str, Any]) -> str:
    """The same of a class as a search judged it."""
    failed, waiting = (int(entry.get(key) or 0) for key in ("failed", "waiting"))
    return _left(str(entry.get("verdict")), failed, waiting)


def promised_reason(name: str, entry: Mapping[str, Any]) -> str:
    """The same as a sentence."""
    return _sentence(name, promised_completed(entry), promised_left(entry))


def promised_completed(entry: Mapping[str, Any]) -> int:
    """How many requests of a class completed where a search judged it: those that its percentile is of."""
    asked, failed, waiting = (int(entry.get(key) or 0) for key in ("requests", "failed", "waiting"))
    return asked - failed - waiting


def promised_verdict(entry: Mapping[str, Any], percentile: float, is_no: bool) -> str:
    """The verdict on a class as the answer has it: few requests, surely late, are what a no rests on, too."""
    verdict, late, asked = str(entry.get("verdict")), int(entry.get("violations") or 0), entry.get("requests")
    surely = priorities.surely_late(late, int(asked or 0), 1 - percentile / 100)
    return "missed" if is_no and verdict == "no verdict" and surely else verdict


def _sentence(name: str, completed: int, left: str) -> str:
    return f"{name}: {counted(completed, 'request')} completed, {left}." if left else ""
