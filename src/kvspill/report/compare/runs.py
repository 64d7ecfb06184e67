"""The reading of everything that holds runs: files, directories, results of several programs."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError
from kvspill.report.columns import COLUMNS, PARAMETERS, figures, finite
from kvspill.report.compare.run import INFERENCE, KV_CACHE_PY, KVSPILL, Run, config_in_name, group_of
from kvspill.report.compare.table_runs import TABLE_SUFFIXES, table_runs
from kvspill.report.settings import flatten, other_settings
from kvspill.result.ranking import faults_text
from kvspill.result.reading import check_size, is_ours, our_result, read_json, refusing_damage
from kvspill.result.schema import Result
from kvspill.result.trials import incomplete_reason

_SUFFIXES = (".json", *TABLE_SUFFIXES)
_SAME_WORK = 0.99
"""Trials whose request counts agree to this share did the same fixed amount of work."""


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """All runs in these files and directories, trials that did less than the others marked incomplete."""
    seen: set[Path] = set()
    contents: dict[str, Path] = {}
    runs: list[Run] = []
    for path in _files(paths):
        check_size(path)
        if path.resolve() in seen:
            raise UsageError(f"{path}: given twice; a run counts once, so name it once on each side")
        seen.add(path.resolve())
        runs += _read_file(path, contents)
    return _mark_unfinished(runs)


def _files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for given in paths:
        path = Path(given)
        if not path.is_dir():
            yield path
            continue
        inside = sorted(child for child in path.iterdir() if child.suffix.lower() in _SUFFIXES)
        if not inside:
            raise UsageError(f"{path}: no JSON, XLSX or CSV file in this directory; give one with results")
        yield from inside


def _read_file(path: Path, contents: dict[str, Path]) -> list[Run]:
    if path.suffix.lower() in TABLE_SUFFIXES:
        return table_runs(path)
    document = read_json(path)
    _refuse_copy(path, document, contents)
    if is_ours(document):
        with refusing_damage(path):
            return list(_our_runs(path, our_result(document, path)))
    if isinstance(document, dict):
        run = _legacy_run(path, document) or _engine_run(path, document)
        if run is not None:
            return [run]
    raise UsageError(
        f"{path}: not a result that can be compared; give JSON of kvspill, kv-cache.py, vLLM or LMCache, "
        "or a summary in XLSX or CSV"
    )


def _refuse_copy(path: Path, document: Any, contents: dict[str, Path]) -> None:
    """Two copies of a run would look like two runs without any scatter."""
    named = json.dumps([config_in_name(path.stem), document], sort_keys=True)
    key = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
    if key in contents:
        raise UsageError(
            f"{path}: the same run as {contents[key]}; a copy is no second run, so name it once on each side"
        )
    contents[key] = path


def _our_runs(path: Path, typed: Result) -> Iterator[Run]:
    result = typed.document()
    config = {parameter.name: result["config"].get(parameter.name) for parameter in PARAMETERS}
    whole = Run(
        name=path.stem,
        group=group_of(path.stem),
        kind=KVSPILL,
        config=config,
        values=figures(result),
        incomplete=incomplete_reason(typed),
        simulated=result["simulated"],
        seconds=finite(result["window"]["measured_seconds"]),
        digest=result.get("digest"),
        others=other_settings(result["config"]),
        facts=_facts(result),
        cautions=tuple(item["code"] for item in result["warnings"]),
        faults=faults_text(typed),
        result_name=path.stem,
    )
    trials = result.get("trials")
    if not trials or len(trials["rows"]) < 2:
        yield whole
        return
    names = {column.name for column in COLUMNS}
    for row in trials["rows"]:
        values = {key: number for key in names if (number := finite(row.get(key))) is not None}
        yield replace(
            whole,
            name=f"{path.stem} trial {row['trial']}",
            values=values,
            incomplete=row["incomplete"],
            digest=row["digest"] if isinstance(row["digest"], str) else None,
        )


_NOT_COMPARED = (
    *("config.sources", "config.output", "config.quiet", "config.debug", "config.xlsx_output"),
    "config.log_ops",
)


def _facts(result: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "kvspill_version": result.get("kvspill_version"),
        "simulated": result["simulated"],
    }
    for part in ("config", "environment"):
        flat.update(flatten(part, result.get(part)))
    for tier in result["tiers"]:
        flat[f"tier.{tier['tier']}"] = f"{tier['backend']}: {tier.get('description', '')}".rstrip(": ")
    users = result["window"].get("users")
    if users is not None and users != result["config"].get("num_users"):
        flat["users in the measured window"] = users
    return {key: value for key, value in flat.items() if not key.startswith(_NOT_COMPARED)}


def _legacy_run(path: Path, document: Mapping[str, Any]) -> Run | None:
    """A result of the existing kv-cache.py: the same summary, but no configuration beside it."""
    summary = document.get("summary")
    if not isinstance(summary, Mapping) or not isinstance(summary.get("cache_stats"), Mapping):
        return None
    values = figures(document)
    return Run(
        name=path.stem,
        group=group_of(path.stem),
        kind=KV_CACHE_PY,
        config=config_in_name(path.stem),
        values=values,
        incomplete=None if values.get("total_requests") else "completed no request",
        seconds=finite(summary.get("elapsed_time")),
        facts={"config.seed": document.get("seed")},
    )


def _engine_run(path: Path, document: Mapping[str, Any]) -> Run | None:
    """vLLM's and LMCache's benchmark output: real inference, so only the wall clock is there."""
    tokens_per_sec = finite(document.get("tokens_per_second"))
    if tokens_per_sec is None:
        return None
    tokens = document.get("total_num_tokens", document.get("total_tokens"))
    requests = document.get("num_requests", document.get("num_prompts"))
    found = {
        "avg_throughput_tokens_per_sec": tokens_per_sec,
        "requests_per_second": finite(document.get("requests_per_second")),
        "total_tokens": finite(tokens),
        "total_requests": finite(requests),
    }
    return Run(
        name=path.stem,
        group=group_of(path.stem),
        kind=INFERENCE,
        config={},
        values={name: value for name, value in found.items() if value is not None},
        seconds=finite(document.get("elapsed_time")),
        facts={key: document[key] for key in ("backend", "tier", "cpu_mem_gb") if key in document},
    )


def _mark_unfinished(runs: list[Run]) -> list[Run]:
    """Where trials of a group agree on a number of requests, one that did clearly fewer was cut off.

    Results without a configuration don't say how many requests were asked for; their siblings do.
    """
    most: dict[str, float] = {}
    for group in {run.group for run in runs if run.kind == KV_CACHE_PY}:
        counts = sorted(run.values.get("total_requests", 0.0) for run in runs if run.group == group)
        if len(counts) > 2 and counts[-2] >= _SAME_WORK * counts[-1] > 0:
            most[group] = counts[-1]
    marked = []
    for run in runs:
        asked, done = most.get(run.group), run.values.get("total_requests", 0.0)
        if run.kind == KV_CACHE_PY and asked and run.incomplete is None and done < _SAME_WORK * asked:
            run = replace(run, incomplete=f"completed {done:.0f} of {asked:.0f} requests")
        marked.append(run)
    return marked
