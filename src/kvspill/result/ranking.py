"""Whether a result may be ranked: what failed in it (S13), and the warnings that spoil a rank (C3)."""

import errno
import os
from collections.abc import Collection, Iterator

from kvspill.measure.lanes import Lane
from kvspill.measure.recorder import Recorder
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import Faults, StuckIo
from kvspill.result.warnings.kind import Spoils
from kvspill.result.warnings.known import KINDS, that_spoil
from kvspill.storage.addresses import GPU_SUSPECTS, in_store, suspects
from kvspill.texts import counted, listed

FAULT_CODES = tuple(kind.code for kind in KINDS.values() if kind.is_fault)
"""Warnings that only a faulty result has."""
_NAMED = 5


def faults_text(result: Result) -> str | None:
    """What failed, such as "12 storage read EIO; 3 failed requests"; None where nothing did."""
    if not result.faulty:
        return None
    found = result.faults
    worst = sorted(found.operations, key=lambda row: -row.count)
    ranks = list(_of_ranks(result))
    parts = list(ranks)
    parts += [f"{row.count:,} {row.tier} {row.verb} {row.kind}" for row in worst[:_NAMED]]
    parts += [f"{counted(len(worst) - _NAMED, 'more kind')} of failures"] if len(worst) > _NAMED else []
    if found.failed_requests and len(ranks) != 1:
        parts.append(counted(found.failed_requests, "failed request"))
    if found.stuck_io.threads:
        calls = stuck_calls(found.stuck_io, in_store(result.config.get("cache_dir")))
        parts.append(f"{calls} did not return, the oldest for {found.stuck_io.oldest_seconds:.1f} s")
    for row in result.trials.rows if result.trials else ():
        counts = {"failed operation": row.failed_operations, "failed request": row.failed_requests}
        in_trial = ", ".join(counted(count, what) for what, count in counts.items() if count)
        parts += [f"trial {row.trial}: {in_trial}"] if in_trial else []
    return "; ".join(parts) or "a trial failed"


def faults_remedy(result: Result) -> str:
    """What to do about what failed in a faulty result."""
    found = result.faults
    if not (found.operations or found.stuck_io.threads):
        return "see its warnings"
    check = suspects(in_store(result.config.get("cache_dir")))
    return f"check {GPU_SUSPECTS if found.stuck_io.stuck_in else check}"


def stuck_calls(stuck: StuckIo, stored: bool) -> str:
    """How many calls hang, and of what."""
    if stuck.stuck_in:
        return f"{counted(stuck.threads, 'call')} of {listed(stuck.stuck_in)}"
    return counted(stuck.threads, "store request" if stored else "system call")


def _of_ranks(result: Result) -> Iterator[str]:
    """The ranks on which something failed, each with what did."""
    faulty = [row for row in result.ranks.rows if row.faulty] if result.ranks else []
    for row in faulty[:_NAMED]:
        yield f"rank {row.rank} on {row.host}: {row.problem}"
    if len(faulty) > _NAMED:
        yield counted(len(faulty) - _NAMED, "more faulty rank")


def rank_faults(found: Faults, recorder: Recorder) -> str | None:
    """What failed on one rank, such as "9 failed requests (No space left on device)"; None if nothing did."""
    if not found.any_found:
        return None
    what = {"failed request": found.failed_requests, "hanging call": found.stuck_io.threads}
    counts = [counted(count, name) for name, count in what.items() if count]
    counts = counts or [counted(found.failed_operations, "failed operation")]
    causes = dict.fromkeys(_cause(row.kind) for row in sorted(found.operations, key=lambda row: -row.count))
    text = ", ".join(counts) + (f" ({', '.join(list(causes)[:_NAMED])})" if causes else "")
    for lane in _failing(recorder):
        tried = lane.op_count + lane.error_count
        text += f", {lane.error_count:,} of its {tried:,} {lane.tier.value} {lane.verb.value}s failed"
    return text


RANK_FAILED = "a rank failed"
"""Why a run that went on to its end is incomplete."""


def has_failed(found: Faults, recorder: Recorder) -> bool:
    """Whether a rank's storage failed as a whole (R4): it was full, or more failed than not."""
    return bool(_failing(recorder)) or any(row.kind == "ENOSPC" for row in found.operations)


def _failing(recorder: Recorder) -> list[Lane]:
    """Tiers and verbs of which more operations failed than not."""
    return [lane for lane in recorder.lanes() if lane.error_count > lane.op_count]


def _cause(kind: str) -> str:
    """The words of the system for an error that it names by a code."""
    number = getattr(errno, kind, None) if kind.isidentifier() else None
    return os.strerror(number) if isinstance(number, int) else kind


def faults_of_warnings(codes: Collection[str]) -> str | None:
    """What failed, where only the codes of the warnings are known."""
    found = [code for code in FAULT_CODES if code in codes]
    return f"{'warning' if len(found) == 1 else 'warnings'} {', '.join(found)}" if found else None


def why_unranked(result: Result) -> str | None:
    """Why a result is not ranked; None where it may be."""
    return no_rank(faults_text(result), [item.code for item in result.warnings])


def no_rank(faults: str | None, codes: Collection[str]) -> str | None:
    """The same where only what failed in it and the codes of its warnings are known."""
    if faults is not None:
        return f"is faulty: {faults}"
    for kind in that_spoil(Spoils.RANK, codes):
        return f'has the warning "{kind.title}"' + (f" ({kind.means})" if kind.means else "")
    return None
