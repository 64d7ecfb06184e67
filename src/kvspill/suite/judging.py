"""What a run of the MLPerf harness is worth: each option judged as a submission."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvspill.config import Config
from kvspill.errors import UsageError, reason_of
from kvspill.outputs import write_whole
from kvspill.result.reading import told_apart_by
from kvspill.result.schema import Result
from kvspill.suite.harness import SUMMARY_FILE, HarnessRun, differences, run_summary
from kvspill.suite.places import Spot
from kvspill.suite.submission import OPTIONS, render, summarize

_INTERNAL = ("sources", "packages", "ignored_keys")


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of a run."""

    document: dict[str, Any]
    lines: list[str]
    is_invalid: bool
    problem: str | None = None
    """Why the summary that is missing could not be written."""


def judge(folder: Path, run: HarnessRun) -> Judged:
    """Judge every option; where the run has no summary as the harness writes it, one is written."""
    own = run_summary(run.options, folder.resolve().name, run.missing)
    documents, lines, invalid = {}, [], False
    seen: dict[str, str] = {}
    for name, trials in run.options.items():
        if name not in OPTIONS:
            raise UsageError(f"{folder}/option_{name}: no such option; there are {', '.join(OPTIONS)}")
        results = [result for ranks in trials for result in ranks]
        if results:
            places = run.places[name]
            copies = _copies(name, places.each(trials), seen)
            summary = summarize(OPTIONS[name], _config(name, results), trials, copies, places)
            documents[name] = summary
            lines += [*render(summary).splitlines(), ""]
            invalid |= summary["division"] == "invalid"
        else:
            lines += [f"option {name}: no result in {path}" for path in run.missing[name]]
            invalid = True
    for path in run.summaries:
        wrong = differences(path, own)
        lines += [f"{path.name}: {text}" for text in wrong]
        lines += [] if wrong else [f"{path.name}: its figures are those of the ranks' files."]
        invalid |= bool(wrong)
    problem = None if run.summaries else _write_summary(folder / SUMMARY_FILE, own)
    if not run.summaries and problem is None:
        lines.append(f"{SUMMARY_FILE}: written, for there was none.")
    return Judged({"options": documents, "missing": run.missing, "summary": own}, lines, invalid, problem)


def _write_summary(path: Path, summary: dict[str, Any]) -> str | None:
    """Returns why it could not be written, if so: the results are judged all the same."""
    try:
        write_whole(path, json.dumps(summary, indent=1, allow_nan=False) + "\n", named=False)
    except OSError as error:
        return f"{path}: is missing and cannot be written ({reason_of(error)}); judge a copy to have it"
    return None


def _copies(option: str, results: Iterable[tuple[Spot, Result]], seen: dict[str, str]) -> list[str]:
    """Which results stand in the run twice, all options together. Equal simulations are no copies."""
    found = []
    for (trial, rank), result in results:
        place = f"option {option}, trial {trial}, rank {rank}"
        own = json.dumps(told_apart_by(result.document()), sort_keys=True)
        key = hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()
        if not result.simulated and seen.setdefault(key, place) != place:
            found.append(f"{place} is the same result as {seen[key]}")
    return found


def _config(option: str, results: Sequence[Result]) -> Config:
    """The configuration that the first result is of; what a result does not state is not assumed."""
    for result in results:
        lacking = [name for name in OPTIONS[option].settings if name not in result.config]
        if lacking:
            raise UsageError(
                f"option {option}: not a whole kvspill result (config has no {lacking[0]}); run it again"
            )
    result = results[0]
    settings = {name: value for name, value in result.config.items() if name not in _INTERNAL}
    try:
        return Config.model_validate(settings)
    except (UsageError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(f"a result's settings are not of this version ({why}); run it again") from error
