"""Closes a suite: keeps the comparison of its rows beside their results, prints it, gives the exit code."""

import io
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from kvspill.errors import INTERRUPTED, KvspillError
from kvspill.result.ranking import faults_text
from kvspill.result.schema import Result
from kvspill.result.warnings.devices import LEFT_BEHIND
from kvspill.run.status import fitted
from kvspill.suite import backends
from kvspill.suite.advice import advise
from kvspill.suite.backends import BACKENDS
from kvspill.suite.facts import Figures, figures
from kvspill.suite.harness import HARNESS_OPTIONS, SUMMARY_FILE, run_summary
from kvspill.suite.manifest import Manifest, RowStatus, read_result, resume_command, write_json, write_text
from kvspill.suite.places import Places
from kvspill.suite.scenario import to_config
from kvspill.suite.submission import OPTIONS, SUBMISSION, render, summarize
from kvspill.suite.table import WIDTH, grid, print_report
from kvspill.texts import make_console, mute, one_line, printing, put

FAILED = 1
PROBE = "probe_read_gib_per_sec"
"""The fact that holds what the idle storage read before the first row."""


@dataclass(frozen=True, slots=True)
class _Closing:
    """What a kind of suite has kept, and what is still to be said of it."""

    show: Callable[[IO[str]], None]
    failed: bool
    unfinished: bool = False
    """Some row is still to be run."""
    problem: KvspillError | None = None
    """Why the comparison could not be kept; what was measured is printed all the same."""


def finish(
    folder: Path,
    manifest: Manifest,
    interrupted: bool,
    stream: IO[str] | None = None,
    problem: KvspillError | None = None,
) -> int:
    """Keep the comparison beside the results and print it; returns the exit code.

    problem: why the state could not be kept, if it could not.
    """
    kinds = {SUBMISSION: _submission, BACKENDS: _targets}
    closing = kinds.get(manifest.facts.get("kind", ""), _scenarios)(folder, manifest)
    stopped = interrupted or closing.unfinished
    problem = problem or closing.problem
    with printing([] if problem is None else [str(problem)]):
        code = _close(resume_command(folder, manifest), closing, stopped, stream or sys.stdout)
    if problem is not None and code != INTERRUPTED:
        raise problem
    return code


def kept(keep: Callable[[], None]) -> KvspillError | None:
    """Keep a comparison or a state; returns why it could not be kept."""
    try:
        keep()
    except KvspillError as error:
        return error
    return None


def _results(folder: Path, manifest: Manifest) -> dict[int, Result]:
    """The results of the rows that have one, by the number of the row."""
    return {
        number: result
        for number, row in enumerate(manifest.rows, start=1)
        if row.finished and (result := read_result(folder, row)) is not None
    }


def _scenarios(folder: Path, manifest: Manifest) -> _Closing:
    """Compare the scenarios."""
    names = [row.scenario.name for row in manifest.rows]
    found = {
        names[number - 1]: figures(names[number - 1], result)
        for number, result in _results(folder, manifest).items()
    }
    advice = advise(found, manifest.facts.get(PROBE))
    problem = kept(lambda: _write_summary(folder, manifest, found, advice))
    unfinished = any(row.status in (RowStatus.PENDING, RowStatus.INTERRUPTED) for row in manifest.rows)
    failed = any(row.status is RowStatus.FAILED for row in manifest.rows)
    failed = failed or any(item.faults is not None for item in found.values())
    failed = failed or any(LEFT_BEHIND.code in item.warnings for item in found.values())

    def show(out: IO[str]) -> None:
        print_report(manifest, found, advice, out)
        put(f"\nResults, one file per scenario: {one_line(folder)}", out)
        if not found and not unfinished:
            put("No scenario was measured: the reason of each stands above.", sys.stderr)

    return _Closing(show, failed or not found, unfinished, problem)


def _submission(folder: Path, manifest: Manifest) -> _Closing:
    """Sum up the trials of a submission."""
    results = _results(folder, manifest)
    trials = [[result] for result in results.values()]
    places = Places([[(number, 0)] for number in results])
    config = to_config(manifest.rows[0].scenario)
    option = manifest.facts["option"]
    summary = summarize(OPTIONS[option], config, trials, places=places)
    summary["files"] = [row.file for row in manifest.rows if row.finished]
    text = render(summary)

    def keep() -> None:
        write_json(folder / "submission.json", summary)
        write_text(folder / "submission.txt", text)
        if trials and option in HARNESS_OPTIONS:
            write_json(folder / SUMMARY_FILE, run_summary({option: trials}, folder.name))

    problem = kept(keep)

    def show(out: IO[str]) -> None:
        # On a terminal no word is broken; a file keeps a line for each thing said.
        columns = shutil.get_terminal_size().columns
        out.write(fitted(text.splitlines(), columns) + "\n" if out.isatty() else text)
        for row in manifest.rows:
            if not row.finished:
                put(one_line(f"{row.scenario.title}: {row.status.value}: {row.reason}"), out)
        put(f"\nResults and submission.json: {one_line(folder)}", out)

    failed = len(trials) < len(manifest.rows) or bool(summary["faulty"] or summary["mixed"])
    failed = failed or any(trial.warning(LEFT_BEHIND.code) for (trial,) in trials)
    return _Closing(show, failed, problem=problem)


def _targets(folder: Path, manifest: Manifest) -> _Closing:
    """Rank the targets."""
    by_number = _results(folder, manifest)
    results = {manifest.rows[number - 1].scenario.name: result for number, result in by_number.items()}
    missing = [row for row in manifest.rows if row.scenario.name not in results]
    order = [{"target": name, "rank": rank} for name, rank in backends.ranked(results)]
    data = {
        "schema_version": 1,
        "title": manifest.title,
        "ranks": order,
        "lines": list(backends.lines(results)),
    }

    def show(out: IO[str]) -> None:
        console = make_console(out, width=None if out.isatty() else WIDTH)
        put(f"\n{manifest.title}\n", out)
        for header, rows in (backends.speeds(results), backends.honesty(results)):
            console.print(grid(header, rows))
            put("", out)
        for line in (*backends.lines(results), *(f"{row.scenario.title}: {row.reason}" for row in missing)):
            put(f"- {one_line(line)}", out)
        put(f"\nResults, one file per target: {one_line(folder)}", out)

    def keep() -> None:
        write_json(folder / "summary.json", data)
        text = io.StringIO()
        show(text)
        write_text(folder / "summary.txt", text.getvalue())

    failed = bool(missing) or any(faults_text(result) for result in results.values())
    return _Closing(show, failed, problem=kept(keep))


def _close(resume: str, closing: _Closing, interrupted: bool, stream: IO[str]) -> int:
    """Print what is kept already. Where Ctrl-C ended the reader as well, the hint and the code remain."""
    try:
        closing.show(stream)
        stream.flush()
    except BrokenPipeError:
        if not interrupted:
            raise
        mute(stream)
    if not interrupted:
        return FAILED if closing.failed else 0
    try:
        # On stderr: a pipe's reader gets the same Ctrl-C and is gone before this is said.
        put(f"Interrupted; to continue: {one_line(resume)}", sys.stderr)
    except OSError:
        mute(sys.stderr)
    return INTERRUPTED


def _write_summary(
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
