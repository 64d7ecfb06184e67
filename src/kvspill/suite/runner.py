"""A whole command: check the machine, run the trials, write and print the result."""

import sys
from datetime import datetime
from pathlib import Path

from kvspill.config import Config
from kvspill.report.console import print_summary
from kvspill.report.result import write_result
from kvspill.suite.progress import Progress
from kvspill.suite.trial import UNLIMITED_BYTES, run_trial

INTERRUPTED = 130


def run_command(config: Config, *, simulated: bool) -> int:
    """Run what the configuration asks for; returns the exit code."""
    progress = Progress(config.quiet)
    storage_bytes = config.storage_bytes
    if storage_bytes is None:
        storage_bytes = UNLIMITED_BYTES if simulated else 8 << 30
    path = _result_path(config)
    result = run_trial(config, simulated=simulated, storage_bytes=storage_bytes, progress=progress)
    write_result(path, result)
    if not config.quiet:
        print_summary(result, [path], file=sys.stdout)
    return INTERRUPTED if result["incomplete"] else 0


def _result_path(config: Config) -> Path:
    if config.output is not None:
        return Path(config.output)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("kvspill-results") / f"{stamp}-{config.model}.json"
