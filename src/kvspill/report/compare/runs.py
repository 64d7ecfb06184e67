"""The reading of everything that holds runs: files, directories, results of several programs."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError
from kvspill.report.columns import COLUMN, COLUMNS, PARAMETERS, figures, finite, of_no_storage
from kvspill.report.compare.run import INFERENCE, KVSPILL, TIER_NAMES, Run, config_in_name, group_of
from kvspill.report.compare.table_runs import TABLE_SUFFIXES, table_runs
from kvspill.report.drives import drive_facts
from kvspill.report.settings import flatten, other_settings
from kvspill.report.unused import without_storage_io
from kvspill.result.answer import in_memory
from kvspill.result.ranking import faults_text
from kvspill.result.reading import (
    KV_CACHE_PY,
    engine_figures,
    is_curve,
    is_ours,
    kv_cache_py_result,
    our_result,
    read_json,
    refusing_damage,
    told_apart_by,
)
from kvspill.result.schema import Result
from kvspill.result.trials import incomplete_reason

_SUFFIXES = (".json", *TABLE_SUFFIXES)
_SAME_WORK = 0.99
"""Trials whose request counts agree to this share did the same fixed amount of work."""


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """All runs in these files and directories, trials that did less than the others marked incomplete."""
    seen: set[str] = set()
    contents: dict[str, Path] = {}
    runs: list[Run] = []
    for path in _files(paths):
        if os.path.realpath(path) in seen:
            raise UsageError(f"{path}: given twice; a run counts once, so name it once on each side")
        seen.add(os.path.realpath(path))
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
    result = our_result(document, path) if is_ours(document) else kv_cache_py_result(document, path)
    if result is not None:
        with refusing_damage(path):
            return list(_result_runs(path, result))
    if is_curve(document, path):
        raise UsageError(
            f"{path}: a curve, not a run; `kvspill report` shows several in one picture, or give results"
        )
    run = _engine_run(path, document) if isinstance(document, dict) else None
    if run is not None:
        return [run]
    raise UsageError(
        f"{path}: not a result that can be compared; give JSON of kvspill, kv-cache.py, vLLM or LMCache, "
        "or a summary in XLSX or CSV"
    )


def _refuse_copy(path: Path, document: Any, contents: dict[str, Path]) -> None:
    """Two copies of a run would look like two runs without any scatter."""
    named = json.dumps([config_in_name(path.stem), told_apart_by(document)], sort_keys=True)
    key = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
    if key in contents:
        raise UsageError(
            f"{path}: the same run as {contents[key]}; a copy is not a second run, so name it once on each "
            "side"
        )
    contents[key] = path


def _result_runs(path: Path, result: Result) -> Iterator[Run]:
    """The trials of a result, or its one run. kv-cache.py's results hold no configuration."""
    ours = result.schema_version > 0
    config = {name: result.config.get(name) for name in PARAMETERS}
    whole = Run(
        name=path.stem,
        group=group_of(path.stem),
        kind=KVSPILL if ours else KV_CACHE_PY,
        config=config if ours else config_in_name(path.stem),
        values=_stored(result, figures(result)),
        incomplete=incomplete_reason(result),
        simulated=result.simulated,
        seconds=result.window.measured_seconds or None,
        digest=result.digest,
        others=other_settings(result.config) if ours else None,
        facts=_facts(result) if ours else {"config.seed": result.seed},
        cautions=tuple(item.code for item in result.warnings),
        faults=faults_text(result),
        result_name=path.stem,
        without_storage_io=without_storage_io(result),
        in_memory=in_memory(result),
        modelled=() if result.simulated else tuple(result.honesty.modelled_tiers),
    )
    rows = result.trials.rows if result.trials else []
    if len(rows) < 2:
        yield whole
        return
    for row in rows:
        found = {column.key: finite((row.model_extra or {}).get(column.key)) for column in COLUMNS}
        yield replace(
            whole,
            name=f"{path.stem} trial {row.trial}",
            values=_stored(result, {key: value for key, value in found.items() if value is not None}),
            incomplete=row.incomplete,
            digest=row.digest if isinstance(row.digest, str) else None,
        )


_NOT_COMPARED = (
    *("config.sources", "config.output", "config.quiet", "config.debug", "config.xlsx_output"),
    *("config.log_ops", "config.prometheus", "config.verbose"),
)


def _facts(result: Result) -> dict[str, Any]:
    flat: dict[str, Any] = {"kvspill_version": result.kvspill_version, "simulated": result.simulated}
    flat.update(flatten("config", result.config))
    environment = {name: value for name, value in (result.environment or {}).items() if name != "directories"}
    flat.update(flatten("environment", environment))
    flat.update(drive_facts(result.environment))
    for tier in result.tiers:
        flat[f"{TIER_NAMES.get(tier.tier, tier.tier)} tier"] = f"{tier.backend}: {tier.description}".rstrip(
            ": "
        )
    users = result.window.users
    if users is not None and users != result.config.get("num_users"):
        flat["users in the measured window"] = users
    if result.ranks is not None:
        flat["ranks of the launch"] = result.ranks.size
    return {key: value for key, value in flat.items() if not key.startswith(_NOT_COMPARED)}


def _stored(result: Result, values: dict[str, float]) -> dict[str, float]:
    """Without figures of a storage that is not there, or was not used."""
    return {key: value for key, value in values.items() if not of_no_storage(COLUMN[key].title, result)}


def _engine_run(path: Path, document: Mapping[str, Any]) -> Run | None:
    """A benchmark of an inference engine."""
    values = engine_figures(document)
    if values is None:
        return None
    return Run(
        name=path.stem,
        group=group_of(path.stem),
        kind=INFERENCE,
        config={},
        values=values,
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
