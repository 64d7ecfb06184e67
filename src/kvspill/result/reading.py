"""Reads result files, ours and the existing program's, and refuses in one line what is neither."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvspill.errors import UsageError, reason_of
from kvspill.inputs import RESULT, Kind, TooMuch, parse_json, read_input
from kvspill.outputs import StrPath
from kvspill.result.metrics.catalog import METRICS
from kvspill.result.schema import SCHEMA_VERSION, MetricValue, Result, Summary, Timeline, Window
from kvspill.result.schema_honesty import Honesty
from kvspill.result.warnings.known import noted

KV_CACHE_PY = "kv-cache.py"
_NEVER_NEGATIVE = {name for metric in METRICS for name, _places in metric.expand()} - {"other_ms"}
"""All but what is left of a difference."""


def read_whole(path: Path, kind: Kind) -> bytes:
    """A file's bytes; refused in one line where it can't be read, or is too large for its kind."""
    try:
        return read_input(path, kind)
    except IsADirectoryError:
        raise UsageError(f"{path}: a directory; give the result files in it, such as {path}/*.json") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); give a result file") from None


def told_apart_by(document: Any) -> Any:
    """What no two runs have in common: a copy of a real run with another date or a remark is still a copy."""
    if (
        not isinstance(document, dict)
        or document.get("simulated") is not False
        or not document.get("metrics")
    ):
        return document
    return [document.get(name) for name in ("config", "digest", "metrics", "histograms", "timeline")]


def refuse_replacing(page: StrPath | None, flag: str) -> None:
    """A page may replace an older page, and nothing else."""
    if page is None or not Path(page).is_file():
        return
    try:
        with Path(page).open("rb") as file:
            start = file.read(256)
    except OSError:
        return
    if start and not start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        raise UsageError(f"{page}: exists and is no HTML page; choose another file with {flag}, or remove it")


@contextmanager
def refusing_damage(what: str | Path) -> Iterator[None]:
    """Whatever a document of the right shape can still get wrong inside becomes one line."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{type(error).__name__}: {error}"[:120]
        raise UsageError(f"{what}: not a whole kvspill result ({text}); run it again") from error


def read_json(path: Path) -> Any:
    """The JSON document in a file; every failure is one line that names the file and the cause."""
    raw = read_whole(path, RESULT)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(
            f"{path}: not a text file; give a result in JSON, or a table in XLSX or CSV"
        ) from None
    if not text.strip():
        raise UsageError(f"{path}: empty; the run that should have written it did not finish: run it again")
    try:
        document = parse_json(text)
        if "\\ud" in text.lower():
            # Half of a character pair is valid JSON, but nobody can print it or write it anywhere.
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except UnicodeEncodeError:
        raise UsageError(f"{path}: holds half a character (\\ud…); write it again or run it again") from None
    except json.JSONDecodeError as error:
        rest = text[error.pos :].rstrip()
        in_a_word = any(word.startswith(rest) for word in ("null", "true", "false"))
        if len(rest) <= 1 or in_a_word or "Unterminated" in error.msg:
            raise UsageError(
                f"{path}: cut short after {len(text):,} characters; copy it again or run it again"
            ) from None
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{path}: not JSON ({error.msg} at {where}); give a result file") from None
    except TooMuch as error:
        raise UsageError(f"{path}: holds too much for a result ({error}); give a result file") from None


def is_ours(document: Any) -> bool:
    return isinstance(document, dict) and "schema_version" in document


CURVE_VERSION = 1


def is_curve(document: Any, path: Path) -> bool:
    """Whether it is what `kvspill curve` wrote; refused in one line where a newer version did."""
    version = document.get("kvspill_curve") if isinstance(document, dict) else None
    if version is not None and version != CURVE_VERSION:
        raise UsageError(
            f"{path}: a curve of version {str(version)[:20]}, and this kvspill reads {CURVE_VERSION}; "
            "upgrade kvspill to read it"
        )
    return version is not None


def our_result(document: dict[str, Any], path: Path) -> Result:
    """A result of any version of kvspill, refused in one line where it is damaged or newer than this one."""
    version = document["schema_version"]
    if isinstance(version, int) and version < 1:
        raise UsageError(f"{path}: schema {version} was never written by kvspill; give a result file")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UsageError(
            f"{path}: written by a newer kvspill (schema {version}, this one reads up to {SCHEMA_VERSION}); "
            "upgrade kvspill to read it"
        )
    try:
        result = Result.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path}: not a whole kvspill result ({place}: {first['msg']}); run it again"
        ) from None
    if not result.config:
        raise UsageError(f"{path}: not a whole kvspill result (config: empty); run it again")
    if (impossible := next(_impossible(document), None)) is not None:
        raise UsageError(f"{path}: not a whole kvspill result ({impossible}); run it again")
    if "faulty" in document:
        # Counts in the file outweigh a word that denies them.
        if result.faults.any_found:
            return result.model_copy(update={"faulty": True})
        return result if result.faulty else _with_faults(result)
    warnings = [noted(item.code, item.message, item.remedy) for item in result.warnings]
    return _with_faults(result.model_copy(update={"warnings": warnings}))


def _impossible(document: dict[str, Any]) -> Iterator[str]:
    """Figures that no run has: they would be drawn, compared and ranked like any other."""
    summary = dict(document["summary"])
    for block in (summary.pop("cache_stats"), summary, document.get("metrics", {})):
        for name, value in block.items():
            for number in _numbers(value):
                if not math.isfinite(number) or (number < 0 and name in _NEVER_NEGATIVE):
                    yield f"{name}: {number:g}"


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)


def _with_faults(result: Result) -> Result:
    """Judged by the counts: the first version had no word for a faulty result."""
    requests = result.honesty.requests
    faults = result.honesty.faults(requests.failed, requests.completed)
    trials = [] if result.trials is None else result.trials.rows
    failed_in_trials = any(row.failed_requests or row.failed_operations for row in trials)
    return result.model_copy(update={"faults": faults, "faulty": faults.any_found or failed_in_trials})


def kv_cache_py_result(document: Any, path: Path) -> Result | None:
    """A result of the existing kv-cache.py, or None: the same summary, but no configuration beside it."""
    if not isinstance(document, dict):
        return None
    summary = document.get("summary")
    if not isinstance(summary, dict) or not isinstance(summary.get("cache_stats"), dict):
        return None
    values = {
        **summary["cache_stats"],
        **summary,
        "total_storage_io_time": document.get("total_storage_io_latency"),
    }
    seed = document.get("seed")
    with refusing_damage(path):
        return _foreign(
            values,
            summary.get("elapsed_time"),
            summary.get("total_requests"),
            seed=seed if type(seed) is int else None,
            environment={"program": KV_CACHE_PY},
            cache_stats=summary["cache_stats"],
        )


def _foreign(
    values: Mapping[str, Any],
    seconds: Any,
    requests: Any,
    *,
    environment: dict[str, Any],
    seed: int | None = None,
    cache_stats: dict[str, Any] | None = None,
) -> Result:
    """Another program's figures, as far as they mean what ours do; its configuration is not known."""
    return Result(
        schema_version=0,
        simulated=False,
        incomplete=False,
        seed=seed,
        config={},
        environment=environment,
        warnings=[],
        honesty=Honesty(),
        tiers=[],
        window=Window(measured_seconds=_number(seconds) or 0.0),
        requests_completed=int(_number(requests) or 0),
        summary=Summary(cache_stats=cache_stats or {}),
        metrics={
            name: MetricValue(value=value, unit=metric.unit)
            for metric in METRICS
            for name, _ in metric.expand()
            if (value := _value(values.get(name))) is not None
        },
        timeline=Timeline(interval_seconds=1, columns={}),
    )


ENGINE = "inference engine"


def engine_figures(document: Any) -> dict[str, float] | None:
    """vLLM's and LMCache's benchmark output: real inference, so only the wall clock is there."""
    if not isinstance(document, dict) or _number(document.get("tokens_per_second")) is None:
        return None
    found = {
        "avg_throughput_tokens_per_sec": _number(document["tokens_per_second"]),
        "requests_per_second": _number(document.get("requests_per_second")),
        "total_tokens": _number(document.get("total_num_tokens", document.get("total_tokens"))),
        "total_requests": _number(document.get("num_requests", document.get("num_prompts"))),
    }
    return {name: value for name, value in found.items() if value is not None}


def _engine_result(document: Any, path: Path) -> Result | None:
    """A benchmark of an engine as a result: figures alone."""
    figures = engine_figures(document)
    if figures is None:
        return None
    program = document.get("backend")
    with refusing_damage(path):
        return _foreign(
            figures,
            document.get("elapsed_time"),
            figures.get("total_requests"),
            environment={"program": program if isinstance(program, str) else ENGINE},
        )


def result_of(document: Any, path: Path) -> Result:
    """A result of ours, of kv-cache.py, or a benchmark of vLLM or LMCache."""
    if is_ours(document):
        return our_result(document, path)
    found = kv_cache_py_result(document, path) or _engine_result(document, path)
    if found is None and isinstance(document, dict) and "kvspill_plan" in document:
        raise UsageError(
            f"{path}: a plan and not a result; `kvspill plan` makes its page, with --page and the same flags"
        )
    if found is None:
        raise UsageError(f"{path}: not a result; give JSON of kvspill, kv-cache.py, vLLM or LMCache")
    return found


def _value(found: Any) -> float | dict[str, int | float] | None:
    if isinstance(found, dict):
        numbers = {str(key): number for key, inner in found.items() if (number := _number(inner)) is not None}
        return numbers or None
    return _number(found)


def _number(value: Any) -> float | None:
    """A usable number, or None: booleans, text, NaN and infinities are not figures."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def load_result(path: str | Path) -> Result:
    """One of our own results."""
    path = Path(path)
    document = read_json(path)
    if not is_ours(document):
        raise UsageError(
            f"{path}: not a kvspill result (no schema_version); give the JSON that `kvspill run` wrote"
        )
    return our_result(document, path)
