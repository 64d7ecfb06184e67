"""Reads result files, ours and the existing program's, and refuses in one line what is neither."""

import json
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kvspill.errors import UsageError
from kvspill.result.result import SCHEMA_VERSION

Result = dict[str, Any]

MAX_BYTES = 256 << 20
"""No result comes near this size; a larger file is something else."""


class _Loose(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Summary(_Loose):
    cache_stats: dict[str, Any]


class _Metric(_Loose):
    value: int | float | dict[str, float] | None
    unit: str


class _Timeline(_Loose):
    interval_seconds: int | float
    columns: dict[str, list[int | float | None]]


class _Caution(_Loose):
    code: str
    message: str
    remedy: str


class _Histogram(_Loose):
    count: int
    max_ns: int
    hdr: str


class _Window(_Loose):
    measured_seconds: int | float


class _TierFacts(_Loose):
    tier: str
    backend: str
    modelled: bool


class _Ours(_Loose):
    """The parts of our result that readers rely on."""

    schema_version: int
    digest: str | None = None
    created_at: str | None = None
    simulated: bool
    incomplete: bool
    config: dict[str, Any]
    warnings: list[_Caution]
    honesty: dict[str, Any]
    tiers: list[_TierFacts]
    window: _Window
    requests_completed: int
    summary: _Summary
    metrics: dict[str, _Metric]
    timeline: _Timeline
    histograms: dict[str, _Histogram]


def check_size(path: Path) -> None:
    """Refuse what can't be read at all, and what is too large to be a result."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot be read ({cause}); check the path") from None
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path}: a directory; give the result files in it, such as {path}/*.json")
    if not stat.S_ISREG(found.st_mode):
        # A pipe or a device may never end.
        raise UsageError(f"{path}: neither a file nor a directory; give a result file")
    nbytes = found.st_size
    if nbytes > MAX_BYTES:
        raise UsageError(f"{path}: larger than any result ({MAX_BYTES >> 20} MiB); give a result file")


def refuse_overwriting(target: str | Path, sources: Iterable[str | Path]) -> None:
    """A result that is being read must not become its own report."""
    path = Path(target)
    if not path.exists():
        return
    for source in (Path(given) for given in sources if Path(given).exists()):
        read = path.suffix.lower() == ".json" and source.is_dir() and path.parent.samefile(source)
        if read or path.samefile(source):
            raise UsageError(f"{path}: one of the results; write to another file, or it would be lost")


def refuse_replacing(page: str | Path) -> None:
    """A page may replace an older page, and nothing else."""
    if not Path(page).is_file():
        return
    try:
        with Path(page).open("rb") as file:
            start = file.read(256)
    except OSError:
        return
    if start and not start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        raise UsageError(f"{page}: exists and is no HTML page; choose another file with -o, or remove it")


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
    check_size(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(
            f"{path}: not a text file; give a result in JSON, or a table in XLSX or CSV"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    if not text.strip():
        raise UsageError(f"{path}: empty; the run that should have written it did not finish: run it again")
    try:
        document = json.loads(text)
        if "\\ud" in text.lower():
            # Half of a character pair is valid JSON, but nobody can print it or write it anywhere.
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except UnicodeEncodeError:
        raise UsageError(f"{path}: holds half a character (\\ud…); write it again or run it again") from None
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg:
            raise UsageError(
                f"{path}: cut short after {len(text):,} characters; copy it again or run it again"
            ) from None
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{path}: not JSON ({error.msg} at {where}); give a result file") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply to be a result; give a result file") from None


def is_ours(document: Any) -> bool:
    return isinstance(document, dict) and "schema_version" in document


def checked_ours(document: Result, path: Path) -> Result:
    """The same document, once it is sure to have the shape that readers rely on."""
    version = document["schema_version"]
    if isinstance(version, int) and version < 1:
        raise UsageError(f"{path}: schema {version} was never written by kvspill; give a result file")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UsageError(
            f"{path}: written by a newer kvspill (schema {version}, this one reads up to {SCHEMA_VERSION}); "
            "upgrade kvspill to read it"
        )
    try:
        _Ours.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path}: not a whole kvspill result ({place}: {first['msg']}); run it again"
        ) from None
    return document


def load_result(path: str | Path) -> Result:
    """One of our own results, checked."""
    path = Path(path)
    document = read_json(path)
    if not is_ours(document):
        raise UsageError(
            f"{path}: not a kvspill result (no schema_version); give the JSON that `kvspill run` wrote"
        )
    return checked_ours(document, path)
