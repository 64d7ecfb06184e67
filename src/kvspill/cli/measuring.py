"""What run, simulate and quick share: run what was asked, keep the result, print it, give the exit code."""

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kvspill.config import Config
from kvspill.config.origins import naming_variables
from kvspill.dates import now_name
from kvspill.errors import INTERRUPTED, KvspillError, UsageError
from kvspill.measure.iotrace import check_packing
from kvspill.measure.oplog import log_paths, trial_paths
from kvspill.outputs import (
    RESULTS,
    file_name,
    write_new,
)
from kvspill.refusals import check_place, missing_folders, will_be_made
from kvspill.report.console import print_summary
from kvspill.report.tables import check_table, row_of, write_table
from kvspill.result.chosen import with_chosen
from kvspill.result.ranking import faults_remedy, faults_text
from kvspill.result.result import result_text, unwritable
from kvspill.result.schema import Result
from kvspill.result.validation import read_service
from kvspill.result.warnings.devices import LEFT_BEHIND
from kvspill.result.warnings.settings import OP_LOG
from kvspill.run.exporter import exporting
from kvspill.run.plan import Plan
from kvspill.run.preflight import check_output
from kvspill.run.progress import Progress
from kvspill.run.ranks import LeaderLost, Ranks, join
from kvspill.run.ranks.checkpoint import checkpoint_path
from kvspill.run.ranks.meeting import Company
from kvspill.run.runner import make_plan, plan_together, run_trials
from kvspill.run.signals import Interrupts, by_signal
from kvspill.spare import Stamp, kept_in, spare_copy
from kvspill.storage.profiles import load_calibration
from kvspill.texts import printing, put
from kvspill.turns import names_from, stamp_before, taken_meanwhile, write_in_turn

_CLOSING_SECONDS_MAX = 1.5
_CLOSED_AFTER_SECONDS = 3.8
"""A run ends by its duration and five seconds (S3); starting and writing the result take a part of those."""


def prepare(config: Config, *, simulated: bool, company: Company | None = None) -> Plan:
    """Raise a UsageError where this run cannot be done; leaves nothing behind and prints nothing."""
    with naming_variables(config.sources):
        if simulated:
            load_calibration(config.device_profile)
        plan = make_plan(config, simulated, company)
        _check_files(config, plan)
    return plan


def _check_files(config: Config, plan: Plan) -> None:
    check_output(config.output)
    if config.log_ops is not None:
        _check_log(Path(config.log_ops), config.trials, plan.rank)
    if config.io_trace_log is not None:
        check_packing(Path(config.io_trace_log))
        for file in trial_paths(Path(config.io_trace_log), config.trials):
            check_place(file, f"--io-trace-log {file}")
    if config.validation_trace is not None:
        read_service(config.validation_trace)
    if config.xlsx_output is not None:
        check_table(config.xlsx_output)
        check_place(config.xlsx_output, f"--xlsx-output {config.xlsx_output}")


def _check_log(path: Path, trials: int, rank: int | None) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f"--log-ops {path}: needs pyarrow, not installed here; pip install 'kvspill[log]'")
    check_place(path, f"--log-ops {path}")
    if path.suffix != ".parquet":
        raise UsageError(f"--log-ops {path}: rows are written as Parquet; name a file that ends in .parquet")
    for file in log_paths(path, trials, rank):
        check_place(file, f"--log-ops {path}: its {file.name}")


def run_command(
    config: Config, *, simulated: bool, verbose: bool = False, chosen: Collection[str] = ()
) -> int:
    """Run what the configuration asks for, write and print it; returns the exit code.

    The codes that it chose are of warnings that the command's own settings cause.
    """
    if config.io_trace_log is not None and not simulated:
        # The logical trace is of the requests: no byte is moved for it, and no time passes.
        simulated = True
        config = config if config.device_profile is not None else config.changed(device_profile="null")
    ranks = join(config, simulated=simulated)
    if ranks.index == 0:
        return _run(config, ranks, simulated, verbose or config.verbose, chosen)
    return follow(ranks, lambda: serve(config, ranks))


def follow(ranks: Ranks, work: Callable[[], object]) -> int:
    """Do what rank 0 leads, which speaks for all: its errors, its result and its exit code."""
    try:
        work()
    except LeaderLost:
        # All others know it too; the first of them says so.
        if ranks.index == 1:
            raise
        return 1
    except (KvspillError, KeyboardInterrupt):
        return 0
    return 0


def serve(config: Config, ranks: Ranks) -> None:
    """Do a rank's part of a run."""
    plan = prepare_together(config, ranks, simulated=False)
    run_trials(plan, Progress(quiet=True), _CLOSING_SECONDS_MAX, ranks)


def prepare_together(
    config: Config, ranks: Ranks, *, simulated: bool, error: KvspillError | None = None
) -> Plan:
    """The plan of this rank, once every rank has one."""

    def make(own: Config, company: Company | None) -> Plan:
        return prepare(own, simulated=simulated, company=company)

    return plan_together(config, ranks, make, error)


def _run(config: Config, ranks: Ranks, simulated: bool, verbose: bool, chosen: Collection[str]) -> int:
    progress, error, before = Progress(config.quiet), None, None
    with contextlib.ExitStack() as served:
        try:
            before = stamp_before(config.output)
            served.enter_context(exporting(None if simulated else config.prometheus, progress))
        except KvspillError as caught:
            error = caught
        plan = prepare_together(config, ranks, simulated=simulated, error=error)
        return _measure(config, plan, ranks, progress, verbose, before, chosen)


def _measure(
    config: Config,
    plan: Plan,
    ranks: Ranks,
    progress: Progress,
    verbose: bool,
    before: Stamp | None,
    chosen: Collection[str],
) -> int:
    path = result_path(config)
    say_new_folders(config, progress)
    if config.duration is not None and config.trials == 1:
        closed_by_seconds = time.monotonic() + config.duration + _CLOSED_AFTER_SECONDS
        plan = replace(plan, closed_by_seconds=closed_by_seconds)
    checkpoint = checkpoint_path(path)
    if ranks.size > 1:
        plan = replace(plan, checkpoint=checkpoint)
        progress.say(f"where the ranks are killed, the last checkpoint stays: {checkpoint}")
    interrupts = Interrupts()
    # What was measured is kept, also where a signal comes after the load.
    with interrupts.handled():
        result = with_chosen(run_trials(plan, progress, _CLOSING_SECONDS_MAX, ranks), chosen)
        cut_off = plan.simulated and not _noted(config, result, progress)
        written, problems = keep_all(config, path, result, before)
        if ranks.size > 1 and not problems:
            checkpoint.unlink(missing_ok=True)
        lost = [f"{item.message} {item.remedy}" for item in result.warnings if item.code == OP_LOG.code]
        left = [f"{item.message} {item.remedy}" for item in result.warnings if item.code == LEFT_BEHIND.code]
        problems += lost if problems else []
        if not config.quiet:
            with printing([*problems, *left]):
                _print(result, written, verbose)
    if problems:
        raise KvspillError("; ".join(problems))
    if cut_off or interrupts.reason is not None or (result.incomplete and by_signal(str(result.interrupted))):
        for text in lost:
            progress.insist(f"warning: {text}")
        return INTERRUPTED
    wrong = whats_wrong(result)
    if wrong is not None or left:
        raise KvspillError("; ".join(dict.fromkeys([*filter(None, [wrong]), *lost, *left])))
    return 0


def _print(result: Result, written: list[Path], verbose: bool) -> None:
    print_summary(result, written, file=sys.stdout, verbose=verbose)
    if result.prediction is not None:
        from kvspill.plan.predict import lines

        put("\n" + "\n".join(lines(result.prediction)))


def _noted(config: Config, result: Result, progress: Progress) -> bool:
    """How certain a simulation on a calibrated device is; False where a signal did not let it find out."""
    from kvspill.plan.predict import note

    try:
        note(config, result, progress.say)
    except KeyboardInterrupt:
        return False
    return True


def say_new_folders(config: Config, progress: Progress) -> None:
    """Say which directories will be made for the files that were named."""
    flags = ("output", "io_trace_log", "log_ops", "xlsx_output")
    named = (given for flag in flags if (given := getattr(config, flag)) is not None)
    for folder in missing_folders(named):
        progress.say(will_be_made(folder))


def keep_all(
    config: Config, path: Path, result: Result, before: Stamp | None
) -> tuple[list[Path], list[str]]:
    """Write the result, and a table where one is asked for; returns all files, and what went wrong.

    before: what stood under the result's name when the run began.
    """
    written, problems = [], []
    try:
        own = _written(config, path, result, before)
        written.append(own)
        if config.output is not None and own != path:
            problems.append(f"{taken_meanwhile(path, own, 'the result of this run')}; give each run its own")
    except KvspillError as error:
        spare = spare_copy(path.name, result_text(result))
        problems.append(f"{error}; {kept_in(spare, 'the result of this run')}")
        written += [] if spare is None else [spare]
    if config.xlsx_output is not None:
        try:
            written.append(write_table(config.xlsx_output, [row_of(path.name, result)]))
        except KvspillError as error:
            problems.append(str(error))
    return [*written, *_logs(config, result)], problems


def _written(config: Config, path: Path, result: Result, before: Stamp | None) -> Path:
    """Write the result; returns where, which is another place where somebody took this one meanwhile."""
    if config.output is None:
        return write_new_result(path, result)

    try:
        return write_in_turn(path, result_text(result), before)
    except OSError as error:
        raise unwritable(path, error) from error


def _logs(config: Config, result: Result) -> Iterator[Path]:
    """The traces and logs that the run wrote beside its result; none of them where one has failed."""
    if result.warning(OP_LOG.code):
        return
    if config.io_trace_log is not None:
        yield from trial_paths(Path(config.io_trace_log), config.trials)
    if config.log_ops is not None:
        ranks: Iterable[int | None] = [None] if result.ranks is None else range(result.ranks.size)
        for rank in ranks:
            # A rank on another machine has its log there.
            yield from filter(Path.exists, log_paths(Path(config.log_ops), config.trials, rank))


def whats_wrong(result: Result) -> str | None:
    """Why the run has failed although it left a result, in one line; None where it has not (S13)."""
    if result.interrupted is not None:
        return f"the run ended early: {result.interrupted}"
    if result.faulty:
        nothing = "" if result.requests_completed else "no request was completed, and "
        why = f"{faults_text(result)}; {faults_remedy(result)}"
        return f"{nothing}the result is faulty and is not ranked: {why}"
    if lost := result.warning(OP_LOG.code):
        return f"{lost.message} {lost.remedy}"
    if not result.requests_completed:
        requests = result.honesty.requests
        return (
            f"no request was completed in the measured time ({requests.arrived:,} arrived, "
            f"{requests.unfinished:,} unfinished at the end); give a longer --duration, or a lighter load"
        )
    return None


def write_new_result(path: Path, result: Result) -> Path:
    """Write the result under that name, or the next one that no other run has taken."""
    try:
        return write_new(names_from(path), result_text(result))
    except OSError as error:
        raise unwritable(path, error) from error


def result_path(config: Config) -> Path:
    """Where the result goes: as asked, or a new file under ./kvspill-results."""
    if config.output is not None:
        return Path(config.output)
    return RESULTS / f"{now_name()}-{file_name(config.model)}.json"
