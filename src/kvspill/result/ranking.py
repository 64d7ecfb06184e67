"""Whether a result may be ranked: what failed in it (S13) and whether it was crowded (C3), in words."""

from collections.abc import Collection

from kvspill.result.cautions import CROWDED, KINDS
from kvspill.result.schema import Result

FAULT_CODES = tuple(kind.code for kind in KINDS.values() if kind.is_fault)
"""Warnings that only a faulty result has."""


def faults_text(result: Result) -> str | None:
    """What failed, such as "12 storage read EIO; 3 failed requests"; None where nothing did."""
    if not result.faulty:
        return None
    found = result.faults
    parts = [f"{row.count:,} {row.tier} {row.verb} {row.kind}" for row in found.operations]
    parts += [_counted(found.failed_requests, "failed request")] if found.failed_requests else []
    parts += [_counted(found.stuck_io.threads, "hung I/O thread")] if found.stuck_io.threads else []
    for row in result.trials.rows if result.trials else ():
        counts = {"failed operation": row.failed_operations, "failed request": row.failed_requests}
        in_trial = ", ".join(_counted(count, what) for what, count in counts.items() if count)
        parts += [f"trial {row.trial}: {in_trial}"] if in_trial else []
    return "; ".join(parts) or "a trial failed"


def faults_of_warnings(codes: Collection[str]) -> str | None:
    """What failed, where only the codes of the warnings are known."""
    found = [code for code in FAULT_CODES if code in codes]
    return f"warning{'' if len(found) == 1 else 's'} {', '.join(found)}" if found else None


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def no_rank(faults: str | None, codes: Collection[str]) -> str | None:
    """Why a result has no rank, by what failed in it and its warnings; None where it has one."""
    if faults is not None:
        return f"is faulty: {faults}"
    if CROWDED.code in codes:
        return "was crowded: the entries in use did not fit in the last tier"
    return None
