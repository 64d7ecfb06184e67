"""A whole command: check the machine, run the trials, write and print the result."""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.config_checks import check_fit
from kvspill.config_unused import unused_settings
from kvspill.errors import KvspillError
from kvspill.measure.mounts import Kernel
from kvspill.report.cautions import Caution, caution
from kvspill.report.console import print_summary
from kvspill.report.result import write_result
from kvspill.report.tables import check_table, row_of, write_table
from kvspill.report.trials import combine
from kvspill.storage.preflight import check_machine
from kvspill.suite.hardware import MEMORY, look_at
from kvspill.suite.interrupts import Interrupts, by_signal
from kvspill.suite.progress import Progress
from kvspill.suite.trial import Plan, run_trial

INTERRUPTED = 130
_SIMULATED_UNLIMITED_BYTES = 1 << 60
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


def make_plan(config: Config, simulated: bool, progress: Progress) -> Plan:
    """Check that the run can be done here, before anything is written."""
    if simulated:
        given = config.storage_bytes
        storage_bytes = _SIMULATED_UNLIMITED_BYTES if given is None else given
        check_fit(config, storage_bytes)
        return Plan(config, True, storage_bytes, warnings=_unused(config))
    machine = check_machine(config)
    progress.say(machine.statement)
    warnings = [*in_memory(machine.cache_dirs, Kernel()), *_unused(config)]
    return Plan(config, False, machine.storage_bytes, machine.cache_dirs, warnings)


def in_memory(cache_dirs: Iterable[Path], kernel: Kernel) -> Iterator[Caution]:
    """Directories without a device behind them: on tmpfs, on a RAM disk, on a loop device in one of them."""
    for path in cache_dirs:
        if look_at(path, kernel).kind == MEMORY:
            yield caution(
                "memory_directory",
                f"--cache-dir {path} lies in memory: the figures are of DRAM, not of a device",
                "Name a directory on the device to be measured.",
            )


def _unused(config: Config) -> list[Caution]:
    """What was given and changes nothing: nothing of that may pass in silence."""
    warnings = [
        caution("unused_setting", f"{item.said} has no effect: {item.reason}.", item.remedy)
        for item in unused_settings(config)
    ]
    if config.ignored_keys:
        keys = ", ".join(config.ignored_keys)
        message = f"Keys of --config that this version leaves unused: {keys}."
        warnings.append(caution("ignored_keys", message, "Make sure that the run needs none of them."))
    return warnings


def run_trials(plan: Plan, progress: Progress, closing_seconds_max: float | None = None) -> dict[str, Any]:
    """All trials of a plan; an interrupted one ends them and is set aside, those before it are kept."""
    results: list[Mapping[str, Any]] = []
    interrupts, trials = Interrupts(), plan.config.trials
    with interrupts.handled():
        for number in range(trials):
            if trials > 1:
                progress.say(f"trial {number + 1} of {trials}")
            if number + 1 == trials:
                plan = replace(plan, closing_seconds_max=closing_seconds_max)
            try:
                results.append(run_trial(plan, progress, interrupts))
            except KeyboardInterrupt:
                if not results:
                    raise
                break
            if results[-1]["incomplete"] or interrupts.reason is not None:
                break
    if trials == 1:
        return dict(results[0])
    whole = combine(results, trials)
    if len(results) < trials:
        whole["incomplete"] = True
    if whole["incomplete"]:
        whole["interrupted"] = whole["interrupted"] or results[-1]["interrupted"] or interrupts.stopped_by
    return whole


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
