"""What run, simulate and quick share: run what was asked, keep the result, print it, give the exit code."""

import importlib.util
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.measure.oplog import requests_path
from kvspill.outputs import check_place
from kvspill.report.console import print_summary
from kvspill.report.tables import check_table, row_of, write_table
from kvspill.result.result import write_result
from kvspill.result.schema import Faults, Result
from kvspill.run.preflight import check_output
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.run.signals import by_signal
from kvspill.run.trial import Plan

INTERRUPTED = 130
_CLOSING_SECONDS_MAX = 1.5
_KINDS_NAMED = 3
_CLOSED_AFTER_SECONDS = 3.8
"""A run ends by its duration and five seconds (S3); starting and writing the result take a part of those."""


def prepare(config: Config, *, simulated: bool) -> Plan:
    """Raise a UsageError where this run cannot be done; leaves nothing behind and prints nothing."""
    plan = make_plan(config, simulated)
    check_output(config.output)
    if config.log_ops is not None:
        _check_log(Path(config.log_ops))
    if config.xlsx_output is not None:
        check_table(config.xlsx_output)
        check_place(config.xlsx_output, f"--xlsx-output {config.xlsx_output}")
    return plan


def _check_log(path: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f"--log-ops {path}: needs pyarrow, not installed here; pip install 'kvspill[log]'")
    check_place(path, f"--log-ops {path}")
    if path.suffix != ".parquet":
        raise UsageError(f"--log-ops {path}: rows are written as Parquet; name a file that ends in .parquet")
    requests = requests_path(path)
    check_place(requests, f"--log-ops {path}: its {requests.name}")


def run_command(config: Config, *, simulated: bool) -> int:
    """Run what the configuration asks for, write and print it; returns the exit code."""
    plan = prepare(config, simulated=simulated)
    progress, path = Progress(config.quiet), result_path(config)
    if config.duration is not None and config.trials == 1:
        closed_by_seconds = time.monotonic() + config.duration + _CLOSED_AFTER_SECONDS
        plan = replace(plan, closed_by_seconds=closed_by_seconds)
    result = run_trials(plan, progress, _CLOSING_SECONDS_MAX)
    path = path if config.output is not None else unused(path)
    written = [keep_result(path, result)]
    if config.xlsx_output is not None:
        written.append(write_table(config.xlsx_output, [row_of(path.name, result)]))
    if not config.quiet:
        print_summary(result, written, file=sys.stdout)
    if result.incomplete and by_signal(str(result.interrupted)):
        return INTERRUPTED
    wrong = whats_wrong(result)
    if wrong is not None:
        raise KvspillError(wrong)
    return 0


def whats_wrong(result: Result) -> str | None:
    """Why the run has failed although it left a result, in one line; None where it has not (S13)."""
    if result.incomplete:
        return f"the run ended early: {result.interrupted}"
    if result.faulty:
        nothing = "" if result.requests_completed else "no request was completed, and "
        texts, of_device = (
            fault_texts(result.faults),
            result.faults.operations or result.faults.stuck_io.threads,
        )
        remedy = "check the device, its free space and the kernel log" if of_device else "see its warnings"
        return f"{nothing}the result is faulty and has no rank: {', '.join(texts)}; {remedy}"
    if not result.requests_completed:
        requests = result.honesty.requests
        return (
            f"no request was completed in the measured time ({requests.arrived:,} arrived, "
            f"{requests.unfinished:,} unfinished at the end); give a longer --duration, or a lighter load"
        )
    return None


def fault_texts(faults: Faults) -> Iterator[str]:
    """What failed, in words."""
    if faults.operations:
        worst = sorted(faults.operations, key=lambda row: -row.count)[:_KINDS_NAMED]
        kinds = ", ".join(f"{row.tier} {row.verb} {row.kind}: {row.count:,}" for row in worst)
        yield f"{_counted(faults.failed_operations, 'operation')} failed ({kinds})"
    if faults.failed_requests:
        yield f"{_counted(faults.failed_requests, 'request')} failed"
    if faults.stuck_io.threads:
        calls = _counted(faults.stuck_io.threads, "system call")
        yield f"{calls} did not return, the oldest for {faults.stuck_io.oldest_seconds:.1f} s"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def keep_result(path: Path, result: Result) -> Path:
    """Write the result; where that has become impossible it is kept elsewhere, and the error says where."""
    try:
        return write_result(path, result)
    except KvspillError as error:
        spare = write_result(Path(tempfile.mkdtemp(prefix="kvspill-")) / path.name, result)
        raise KvspillError(f"{error}; the result of this run is in {spare}") from error


def unused(path: Path) -> Path:
    """That path, or the next one that no other run of the same second has taken."""
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(free for free in chain([path], names) if not free.exists())


def result_path(config: Config) -> Path:
    """Where the result goes: as asked, or a new file under ./kvspill-results."""
    if config.output is not None:
        return Path(config.output)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("kvspill-results") / f"{stamp}-{config.model}.json"
