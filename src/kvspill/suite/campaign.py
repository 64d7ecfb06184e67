"""Runs the rows of a suite one after the other and keeps every result."""

import contextlib
import time
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.outputs import write_whole
from kvspill.refusals import refuse_clashes
from kvspill.result.ranking import RANK_FAILED
from kvspill.result.result import result_text, unwritable
from kvspill.result.schema import Result
from kvspill.run.progress import Progress
from kvspill.run.ranks import RankFailed, Ranks
from kvspill.run.runner import make_plan, plan_together, run_trials
from kvspill.run.signals import Interrupts, by_signal, cut_off
from kvspill.spare import kept_in, spare_copy
from kvspill.suite.closing import finish, kept
from kvspill.suite.manifest import NAME as MANIFEST_NAME
from kvspill.suite.manifest import Manifest, Row, RowStatus, is_suite, locked, save, settle
from kvspill.suite.provenance import without_foreign
from kvspill.suite.scenario import to_config, unavailable
from kvspill.suite.sizing import budget_text
from kvspill.suite.submission import SUBMISSION
from kvspill.texts import counted


def run_rows(
    folder: Path,
    manifest: Manifest,
    progress: Progress,
    debug: bool = False,
    ranks: Ranks | None = None,
) -> tuple[Manifest, bool]:
    """Run what is not finished. Returns the new state and whether the user stopped it."""
    for number, row in enumerate(manifest.rows):
        if row.finished:
            continue
        where = f"[{number + 1}/{len(manifest.rows)}] {row.scenario.title}"
        reason = unavailable(row.scenario.settings)
        if reason is not None:
            progress.say(f"{where}: {reason}")
            manifest = manifest.with_row(number, status=RowStatus.UNAVAILABLE, reason=reason)
            _save_if_possible(folder, manifest, where, progress)
            continue
        interrupts = Interrupts()
        # A row whose load is over is kept, also where the signal comes then.
        with interrupts.handled():
            changes = _run_row(folder, row, where, manifest.simulated, progress, debug, ranks or Ranks())
            manifest = manifest.with_row(number, **changes)
            _save_if_possible(folder, manifest, where, progress)
        if changes["status"] is RowStatus.INTERRUPTED or interrupts.reason is not None:
            return manifest, True
    return manifest, False


def _save_if_possible(folder: Path, manifest: Manifest, where: str, progress: Progress) -> None:
    """Between two rows; the rows to come are worth more than the state, which is saved again after each."""
    try:
        save(folder, manifest)
    except KvspillError as error:
        progress.say(f"{where}: the suite goes on, but its state was not kept: {error}")


def _run_row(
    folder: Path,
    row: Row,
    where: str,
    simulated: bool,
    progress: Progress,
    debug: bool,
    ranks: Ranks,
) -> dict[str, Any]:
    """Measure one row and keep its result; whatever goes wrong becomes its state, not the suite's end."""
    started = time.monotonic()
    try:
        config = to_config(row.scenario)
        progress.say(f"{where}: {describe(config)}")
        result = _measured(config, simulated, progress, ranks)
        if result.incomplete:
            _keep(folder / _partial(row.file), result)
            reason = result.interrupted or RANK_FAILED
            if not by_signal(reason):
                raise KvspillError(f"ended early: {reason}")
            return {"status": RowStatus.INTERRUPTED, "reason": reason}
        _keep(folder / row.file, result)
    except KeyboardInterrupt:
        return {"status": RowStatus.INTERRUPTED, "reason": "stopped before the load began"}
    except UsageError as error:
        progress.say(f"{where}: skipped: {error}")
        return {"status": RowStatus.SKIPPED, "reason": str(error)}
    except KvspillError as error:
        progress.say(f"{where}: failed: {error}")
        return {"status": RowStatus.FAILED, "reason": str(error)}
    except Exception as error:
        # An unattended suite must not lose its remaining rows to one row's defect.
        if debug:
            raise
        progress.say(f"{where}: internal error: {type(error).__name__}: {error}")
        return {"status": RowStatus.FAILED, "reason": f"internal error: {type(error).__name__}: {error}"}
    return {"status": RowStatus.DONE, "reason": "", "seconds": round(time.monotonic() - started, 1)}


def _keep(path: Path, result: Result) -> None:
    """Write a row's result; where its directory does not take it, a copy elsewhere, which the error names."""
    text = result_text(result)
    try:
        write_whole(path, text, named=False)
    except OSError as error:
        refused = unwritable(path, error, "--output-dir")
        raise KvspillError(f"{refused}; {kept_in(spare_copy(path.name, text))}") from error


def _measured(config: Config, simulated: bool, progress: Progress, ranks: Ranks) -> Result:
    """One row on all ranks, which are told what it is."""
    ranks.anew()
    row: Config | None = config
    ranks.agree(row, _first)
    with cut_off():
        plan = plan_together(config, ranks, lambda own, company: make_plan(own, simulated, company))
    return run_trials(plan, progress, ranks=ranks)


def follow_rows(ranks: Ranks) -> None:
    """On other ranks than 0: do their part of every row that it runs, until it ends."""
    while True:
        ranks.anew()
        config = ranks.agree(None, _first)
        assert config is not None, "rank 0 says what the row is"
        try:
            plan = plan_together(config, ranks, lambda own, company: make_plan(own, False, company))
            run_trials(plan, Progress(quiet=True), ranks=ranks)
        except RankFailed:
            raise
        except KvspillError:
            # Rank 0 has it, too, and goes on with its next row.
            continue


def _first(words: list[Config | None]) -> Config | None:
    return words[0]


def describe(config: Config) -> str:
    """A row in few words: what it will do."""
    tiers = [f"GPU {config.gpu_mem_gb:g} GiB"] if config.gpu_bytes else []
    tiers += [f"DRAM {config.cpu_mem_gb:g} GiB"] if config.cpu_bytes else []
    if config.storage_tier == "on":
        tiers.append(
            f"storage {budget_text(config.storage_capacity_gb)}" if config.storage_capacity_gb else "storage"
        )
    time_text = f"{config.duration:g} s" if config.duration else counted(config.max_requests or 0, "request")
    return f"{config.model}, {counted(config.num_users, 'user')}, {time_text}, {' + '.join(tiers)}"


def run_folder(
    folder: Path,
    manifest: Manifest,
    progress: Progress,
    debug: bool = False,
    ranks: Ranks | None = None,
) -> int:
    """Run what is not finished in a directory of results and report on all of it; returns the exit code."""
    _refuse_clashes(folder, manifest)
    with locked(folder):
        if is_suite(folder):
            # Another process may have gone on with it until a moment ago: its rows are not to run twice.
            manifest, _ = without_foreign(folder, settle(folder, manifest))
        save(folder, manifest)
        manifest, interrupted = run_rows(folder, manifest, progress, debug, ranks)
        problem = kept(lambda: save(folder, manifest))
        return finish(folder, manifest, interrupted, problem=problem)


def _refuse_clashes(folder: Path, manifest: Manifest) -> None:
    """Refuse a directory where the suite would write over a file that its rows are read from."""
    inputs: list[str] = []
    for row in manifest.rows:
        inputs.append(row.scenario.origin)
        with contextlib.suppress(UsageError):
            # A row that cannot run reads nothing.
            inputs += to_config(row.scenario).input_files
    closing = (f"{name}.{kind}" for name in ("summary", SUBMISSION) for kind in ("json", "txt"))
    own = [name for row in manifest.rows for name in (row.file, _partial(row.file))]
    for name in (MANIFEST_NAME, *closing, *own):
        own_file = {f"--output-dir {folder}: its {name}": folder / name}
        refuse_clashes(own_file, dict.fromkeys(inputs), named=False)


def _partial(file: str) -> str:
    """Where a row that was interrupted keeps what it measured."""
    return f"{Path(file).stem}.incomplete.json"
