"""What run, simulate and quick share: run what was asked, keep the result, print it, give the exit code."""

import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.report.console import print_summary
from kvspill.report.tables import check_table, row_of, write_table
from kvspill.result.result import write_result
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.run.signals import by_signal

INTERRUPTED = 130
_CLOSING_SECONDS_MAX = 1.5
_CLOSED_AFTER_SECONDS = 3.8
"""A run ends by its duration and five seconds (S3); starting and writing the result take a part of those."""


def run_command(config: Config, *, simulated: bool) -> int:
    """Run what the configuration asks for, write and print it; returns the exit code."""
    progress = Progress(config.quiet)
    started_seconds = time.monotonic()
    plan = make_plan(config, simulated, progress)
    path = result_path(config)
    if config.xlsx_output is not None:
        check_table(config.xlsx_output)
    if config.duration is not None and config.trials == 1:
        plan = replace(plan, closed_by_seconds=started_seconds + config.duration + _CLOSED_AFTER_SECONDS)
    result = run_trials(plan, progress, _CLOSING_SECONDS_MAX)
    path = path if config.output is not None else unused(path)
    written = [keep_result(path, result)]
    if config.xlsx_output is not None:
        written.append(write_table(config.xlsx_output, [row_of(path.name, result)]))
    if not config.quiet:
        print_summary(result, written, file=sys.stdout)
    if not result["incomplete"]:
        return 0
    if by_signal(str(result["interrupted"])):
        return INTERRUPTED
    raise KvspillError(f"the run ended early: {result['interrupted']}")


def keep_result(path: Path, result: Mapping[str, Any]) -> Path:
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
