"""Runs the rows of a suite one after the other, keeps every result, and closes with the comparison."""

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from kvspill.config import Config
from kvspill.errors import INTERRUPTED, KvspillError, UsageError
from kvspill.outputs import refuse_clashes, write_whole
from kvspill.result.ranking import RANK_FAILED, faults_text
from kvspill.result.result import result_text, unwritable
from kvspill.result.schema import Result
from kvspill.result.warnings.devices import LEFT_BEHIND
from kvspill.run.glance import fitted
from kvspill.run.progress import Progress
from kvspill.run.ranks import RankFailed, Ranks
from kvspill.run.runner import make_plan, plan_together, run_trials
from kvspill.run.signals import Interrupts, by_signal, cut_off
from kvspill.spare import kept_in, spare_copy
from kvspill.suite import backends
from kvspill.suite.advice import advise
from kvspill.suite.backends import BACKENDS
from kvspill.suite.facts import Figures, figures
from kvspill.suite.harness import HARNESS_OPTIONS, SUMMARY_FILE, run_summary
from kvspill.suite.manifest import NAME as MANIFEST_NAME
from kvspill.suite.manifest import (
    Manifest,
    Row,
    RowStatus,
    locked,
    read_result,
    resume_command,
    save,
    write_json,
    write_text,
)
from kvspill.suite.places import Places
from kvspill.suite.scenario import to_config, unavailable
from kvspill.suite.sizing import budget_text
from kvspill.suite.submission import OPTIONS, render, summarize
from kvspill.suite.table import WIDTH, grid, print_report
from kvspill.texts import counted, make_console, mute, one_line, put

FAILED = 1
SUBMISSION = "submission"
"""The kind of suite whose rows are the trials of a submission."""
PROBE = "probe_read_gib_per_sec"
"""The fact that holds what the idle storage read before the first row."""


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


def collect(folder: Path, manifest: Manifest) -> dict[str, Figures]:
    """The figures of every row that has a result."""
    found = {}
    for row in manifest.rows:
        result = read_result(folder, row)
        if row.finished and result is not None:
            found[row.scenario.name] = figures(row.scenario.name, result)
    return found


def finish(folder: Path, manifest: Manifest, interrupted: bool, stream: IO[str] | None = None) -> int:
    """Keep the comparison beside the results and print it; returns the exit code."""
    found = collect(folder, manifest)
    advice = advise(found, manifest.facts.get(PROBE))
    problem: KvspillError | None = None
    try:
        write_summary(folder, manifest, found, advice)
    except KvspillError as error:
        # What was measured is printed all the same.
        problem = error
    unfinished = any(row.status in (RowStatus.PENDING, RowStatus.INTERRUPTED) for row in manifest.rows)
    failed = any(row.status is RowStatus.FAILED for row in manifest.rows)
    failed = failed or any(item.faults is not None for item in found.values())
    failed = failed or any(LEFT_BEHIND.code in item.warnings for item in found.values())

    def show(out: IO[str]) -> None:
        print_report(manifest, found, advice, out)
        put(f"\nResults, one file per scenario: {one_line(folder)}", out)
        if not found and not unfinished:
            put("No scenario was measured: the reason of each stands above.", sys.stderr)

    failed = failed or not found
    code = _close(
        resume_command(folder, manifest), show, interrupted or unfinished, failed, stream or sys.stdout
    )
    if problem is not None and code != INTERRUPTED:
        raise problem
    return code


def finish_submission(
    folder: Path, manifest: Manifest, interrupted: bool, stream: IO[str] | None = None
) -> int:
    """Sum up the trials, keep and print the summary; returns the exit code."""
    results = {
        number: result
        for number, row in enumerate(manifest.rows, start=1)
        if row.finished and (result := read_result(folder, row)) is not None
    }
    trials = [[result] for result in results.values()]
    places = Places([[(number, 0)] for number in results])
    config = to_config(manifest.rows[0].scenario)
    summary = summarize(OPTIONS[manifest.facts["option"]], config, trials, places=places)
    summary["files"] = [row.file for row in manifest.rows if row.finished]
    write_json(folder / "submission.json", summary)
    text = render(summary)
    write_text(folder / "submission.txt", text)
    option = manifest.facts["option"]
    if trials and option in HARNESS_OPTIONS:
        write_json(folder / SUMMARY_FILE, run_summary({option: trials}, folder.name))

    def show(out: IO[str]) -> None:
        # On a terminal no word is broken; a file keeps a line for each thing said.
        columns = shutil.get_terminal_size().columns
        out.write(fitted(text.splitlines(), columns) + "\n" if out.isatty() else text)
        for row in manifest.rows:
            if not row.finished:
                put(one_line(f"{row.scenario.title}: {row.status.value}: {row.reason}"), out)
        put(f"\nResults and submission.json: {one_line(folder)}", out)

    failed = len(trials) < len(manifest.rows) or bool(summary["faulty"] or summary["mixed"])
    failed = failed or any(item.code == LEFT_BEHIND.code for (trial,) in trials for item in trial.warnings)
    return _close(resume_command(folder, manifest), show, interrupted, failed, stream or sys.stdout)


def finish_backends(
    folder: Path, manifest: Manifest, interrupted: bool, stream: IO[str] | None = None
) -> int:
    """Rank the targets, keep the ranking beside the results and print it; returns the exit code."""
    results = {
        row.scenario.name: result
        for row in manifest.rows
        if row.finished and (result := read_result(folder, row)) is not None
    }
    missing = [row for row in manifest.rows if row.scenario.name not in results]
    order = [{"target": name, "rank": rank} for name, rank in backends.ranked(results)]
    data = {
        "schema_version": 1,
        "title": manifest.title,
        "ranks": order,
        "lines": list(backends.lines(results)),
    }
    write_json(folder / "summary.json", data)

    def show(out: IO[str]) -> None:
        console = make_console(out, width=None if out.isatty() else WIDTH)
        put(f"\n{manifest.title}\n", out)
        for header, rows in (backends.speeds(results), backends.honesty(results)):
            console.print(grid(header, rows))
            put("", out)
        for line in (*backends.lines(results), *(f"{row.scenario.title}: {row.reason}" for row in missing)):
            put(f"- {one_line(line)}", out)
        put(f"\nResults, one file per target: {one_line(folder)}", out)

    text = io.StringIO()
    show(text)
    write_text(folder / "summary.txt", text.getvalue())
    failed = bool(missing) or any(faults_text(result) for result in results.values())
    return _close(resume_command(folder, manifest), show, interrupted, failed, stream or sys.stdout)


def _close(
    resume: str, show: Callable[[IO[str]], None], interrupted: bool, failed: bool, stream: IO[str]
) -> int:
    """Print what is kept already. Where Ctrl-C ended the reader as well, the hint and the code remain."""
    try:
        show(stream)
        stream.flush()
    except BrokenPipeError:
        if not interrupted:
            raise
        mute(stream)
    if not interrupted:
        return FAILED if failed else 0
    try:
        # On stderr: a pipe's reader gets the same Ctrl-C and is gone before this is said.
        put(f"Interrupted; to continue: {one_line(resume)}", sys.stderr)
    except OSError:
        mute(sys.stderr)
    return INTERRUPTED


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
        save(folder, manifest)
        manifest, interrupted = run_rows(folder, manifest, progress, debug, ranks)
        save(folder, manifest)
        closings = {SUBMISSION: finish_submission, BACKENDS: finish_backends}
        return closings.get(manifest.facts.get("kind", ""), finish)(folder, manifest, interrupted)


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


def write_summary(
    folder: Path, manifest: Manifest, found: Mapping[str, Figures], advice: Sequence[str]
) -> None:
    """summary.json for programs, summary.txt for people."""
    rows = [
        {
            "name": row.scenario.name,
            "title": row.scenario.title,
            "status": row.status.value,
            "reason": row.reason,
            "file": row.file if row.finished else None,
            "notes": list(row.scenario.notes),
            "figures": asdict(found[row.scenario.name]) if row.scenario.name in found else None,
        }
        for row in manifest.rows
    ]
    data = {
        "schema_version": 1,
        "title": manifest.title,
        "simulated": manifest.simulated,
        "quick": manifest.quick,
        "created_at": manifest.created_at,
        "derived": list(manifest.notes),
        "rows": rows,
        "advice": list(advice),
    }
    write_json(folder / "summary.json", data)
    text = io.StringIO()
    put("\n".join(manifest.notes), text)
    print_report(manifest, found, advice, text)
    write_text(folder / "summary.txt", text.getvalue())
