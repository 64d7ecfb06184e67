"""Warnings that a trial raises of its own accord: rows that are missing, backends that made do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvspill.measure.iotrace import IoTrace
from kvspill.measure.oplog import OpLog
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.known import noted
from kvspill.result.warnings.settings import BAD_ROWS, OP_LOG
from kvspill.run.progress import Progress
from kvspill.storage.base import Backend


def log_cautions(log: OpLog | IoTrace | None, flag: str, path: Path | None) -> list[Caution]:
    """The warning that a log of operations lacks rows, where it does; closes the log."""
    if log is None:
        return []
    log.close()
    return [] if log.failure is None else [OP_LOG.of(flag=flag, path=path, reason=log.failure)]


def skipped_rows(workload: Mapping[str, Any]) -> list[Caution]:
    """The warning that rows of a recording were left out, where some were."""
    skipped = workload.get("bad_rows_skipped", 0)
    if not skipped:
        return []
    return [BAD_ROWS.of(skipped=skipped, first=workload["bad_rows"][0])]


def backend_warnings(backends: Sequence[Backend], progress: Progress) -> list[Caution]:
    """Warnings of backends that prepared themselves otherwise than asked."""
    warnings = [noted(*note) for backend in backends for note in backend.notes()]
    for warning in warnings:
        progress.say(f"warning: {warning.message} {warning.remedy}")
    return warnings
