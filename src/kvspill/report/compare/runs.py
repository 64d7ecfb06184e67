"""A run as comparisons see it, and the reading of everything that holds runs."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from kvspill.errors import UsageError
from kvspill.report.columns import COLUMNS, PARAMETERS, figures, finite, with_derived
from kvspill.report.reading import check_size, checked_ours, is_ours, read_json, refusing_damage
from kvspill.report.trials import incomplete_reason

KVSPILL = "kvspill"
KV_CACHE_PY = "kv-cache.py"
INFERENCE = "inference engine"
TABLE = "table"

_CONFIG_IN_NAME = re.compile(
    r"^(?:mlperf_v\d+_(?:storage|stress)_)?(?P<model>.+?)_cpu(?P<cpu_mem_gb>\d+(?:\.\d+)?)GB"
    r"_qd(?P<max_concurrent_allocs>\d+)_gen(?P<generation_mode>[a-z]+)_users(?P<num_users>\d+)"
)
_TRIAL = re.compile(r"[_-]*trial[_-]*\d+$", re.IGNORECASE)
_NUMBERS = ("cpu_mem_gb", "max_concurrent_allocs", "num_users")
_TABLE_SUFFIXES = (".xlsx", ".csv")
_SUFFIXES = (".json", *_TABLE_SUFFIXES)
_SAME_WORK = 0.99
"""Trials whose request counts agree to this share did the same fixed amount of work."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: what it was asked, what came out, and whether it may be averaged."""

    name: str
    group: str
    """The name without its trial number: trials of one configuration share it."""
    kind: str
    config: Mapping[str, Any]
    values: Mapping[str, float]
    incomplete: str | None = None
    simulated: bool = False
    seconds: float | None = None
    """Length of the measured window."""
    digest: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration and environment, flat: what the list of differences is made from."""
    cautions: tuple[str, ...] = ()


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """All runs in these files and directories, trials that did less than the others marked incomplete."""
    seen: set[Path] = set()
    runs: list[Run] = []
    for path in _files(paths):
        if path.resolve() in seen:
            raise UsageError(f"{path}: given twice; a run counts once, so name it once on each side")
        seen.add(path.resolve())
        runs += _read_file(path)
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


def _read_file(path: Path) -> list[Run]:
    suffix = path.suffix.lower()
    check_size(path)
    if suffix in _TABLE_SUFFIXES:
        rows = _xlsx_rows(path) if suffix == ".xlsx" else _csv_rows(path)
        return _table_runs(path, rows)
    document = read_json(path)
    if is_ours(document):
        with refusing_damage(path):
            return list(_our_runs(path, checked_ours(document, path)))
    if isinstance(document, dict):
        run = _legacy_run(path, document) or _engine_run(path, document)
        if run is not None:
            return [run]
    raise UsageError(
        f"{path}: not a result that can be compared; give JSON of kvspill, kv-cache.py, vLLM or LMCache, "
        "or a summary in XLSX or CSV"
    )


def _group(name: str) -> str:
    return _TRIAL.sub("", name) or name


def config_in_name(name: str) -> dict[str, Any]:
    """The parameters that a file's name spells out (…_cpu4GB_qd16_gennone_users100), or nothing."""
    match = _CONFIG_IN_NAME.match(PurePosixPath(name).name)
    if match is None:
        return {}
    found: dict[str, Any] = match.groupdict()
    return {key: float(value) if key in _NUMBERS else value for key, value in found.items()}


def _our_runs(path: Path, result: Mapping[str, Any]) -> Iterator[Run]:
    config = {parameter.name: result["config"].get(parameter.name) for parameter in PARAMETERS}
    whole = Run(
        name=path.stem,
        group=_group(path.stem),
        kind=KVSPILL,
        config=config,
        values=figures(result),
        incomplete=incomplete_reason(result),
        simulated=result["simulated"],
        seconds=finite(result["window"]["measured_seconds"]),
        digest=result.get("digest"),
        facts=_facts(result),
        cautions=tuple(item["code"] for item in result["warnings"]),
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
            digest=row["digest"],
        )


_NOT_COMPARED = ("config.sources", "config.output", "config.quiet", "config.debug", "config.xlsx_output")


def _facts(result: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "kvspill_version": result.get("kvspill_version"),
        "simulated": result["simulated"],
    }
    for part in ("config", "environment"):
        flat.update(_flatten(part, result.get(part)))
    for tier in result["tiers"]:
        flat[f"tier.{tier['tier']}"] = f"{tier['backend']}: {tier.get('description', '')}".rstrip(": ")
    return {key: value for key, value in flat.items() if not key.startswith(_NOT_COMPARED)}


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(f"{prefix}.{key}", inner)
    else:
        yield prefix, value


def _legacy_run(path: Path, document: Mapping[str, Any]) -> Run | None:
    """A result of the existing kv-cache.py: the same summary, but no configuration beside it."""
    summary = document.get("summary")
    if not isinstance(summary, Mapping) or not isinstance(summary.get("cache_stats"), Mapping):
        return None
    values = figures(document)
    return Run(
        name=path.stem,
        group=_group(path.stem),
        kind=KV_CACHE_PY,
        config=config_in_name(path.stem),
        values=values,
        incomplete=None if values.get("total_requests") else "completed no request",
        seconds=finite(summary.get("elapsed_time")),
        facts={"seed": document.get("seed")},
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
        group=_group(path.stem),
        kind=INFERENCE,
        config={},
        values={name: value for name, value in found.items() if value is not None},
        seconds=finite(document.get("elapsed_time")),
        facts={key: document[key] for key in ("backend", "tier", "cpu_mem_gb") if key in document},
    )


def _xlsx_rows(path: Path) -> list[Sequence[Any]]:
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise UsageError(
            f"{path}: XLSX needs openpyxl, not installed here: `pip install 'kvspill[report]'`, or give CSV"
        ) from None
    try:
        with path.open("rb") as file:
            book = load_workbook(file, read_only=True, data_only=True)
            sheets = book.worksheets
            return [list(row) for row in sheets[0].iter_rows(values_only=True)] if sheets else []
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except Exception as error:
        # openpyxl lets zipfile, XML and its own errors through; all of them mean a damaged file.
        raise UsageError(
            f"{path}: not a readable XLSX file ({type(error).__name__}: {error}); copy or export it again"
        ) from None


def _csv_rows(path: Path) -> list[Sequence[Any]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [list(row) for row in csv.reader(file)]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not a readable CSV file ({error}); export it again") from None


def _table_runs(path: Path, rows: Sequence[Sequence[Any]]) -> list[Run]:
    header = [str(cell).strip() if cell is not None else "" for cell in rows[0]] if rows else []
    known = {column.title for column in COLUMNS}
    if "Filename" not in header or not known.intersection(header):
        raise UsageError(
            f"{path}: not a summary of results (no column Filename with figures such as "
            f"{COLUMNS[0].title!r}); give a table that kvspill or kv-cache.py's tools wrote"
        )
    runs = [_row_run(dict(zip(header, row, strict=False))) for row in rows[1:] if any(row)]
    if not runs:
        raise UsageError(f"{path}: a summary without rows; give one with results")
    return runs


def _row_run(row: Mapping[str, Any]) -> Run:
    name = PurePosixPath(str(row.get("Filename") or "")).stem
    found = ((column.name, _number(row.get(column.title))) for column in COLUMNS)
    config = {
        parameter.name: _setting(row[parameter.title])
        for parameter in PARAMETERS
        if row.get(parameter.title) not in (None, "")
    }
    stopped = str(row.get("Incomplete", "")).lower() in ("true", "1")
    return Run(
        name=name,
        group=_group(name),
        kind=TABLE,
        config={**config_in_name(name), **config},
        values=with_derived({key: value for key, value in found if value is not None}),
        incomplete="ended early" if stopped else None,
        simulated=str(row.get("Simulated", "")).lower() in ("true", "1"),
        seconds=_number(row.get("Measured Time (s)")),
    )


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite(value)


def _setting(value: Any) -> Any:
    number = _number(value)
    return value if number is None else number


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
