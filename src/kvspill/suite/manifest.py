"""The state of a suite on disk: its rows and the status of each, so that it can continue after a kill."""

import contextlib
import fcntl
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kvspill import __version__
from kvspill.config.messages import shown
from kvspill.dates import now_text
from kvspill.errors import KvspillError, UsageError, reason_of
from kvspill.inputs import MANIFEST, parse_json, read_input
from kvspill.outputs import write_whole
from kvspill.result.reading import load_result
from kvspill.result.schema import Result
from kvspill.suite.backends import BACKENDS
from kvspill.suite.scenario import OWN_KEYS, Scenario
from kvspill.suite.submission import OPTIONS, SUBMISSION
from kvspill.waiting import within

SCHEMA_VERSION = 1
NAME = "manifest.json"
_UNLOCK_SECONDS_MAX = 0.2
_LOCK = ".lock"
_FILE = re.compile(r"\d{2,4}-[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.json")


class RowStatus(StrEnum):
    """The state of a row."""

    PENDING = "pending"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    UNAVAILABLE = "not available"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Row:
    """A scenario and its state."""

    scenario: Scenario
    file: str
    status: RowStatus = RowStatus.PENDING
    reason: str = ""
    seconds: float | None = None

    @property
    def finished(self) -> bool:
        """Nothing would be gained by running it again."""
        return self.status is RowStatus.DONE


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of a suite that is not a result."""

    title: str
    simulated: bool
    quick: bool
    notes: tuple[str, ...]
    rows: tuple[Row, ...]
    created_at: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the kind of suite needs to know again after a resume."""

    def with_row(self, number: int, **changes: Any) -> "Manifest":
        rows = list(self.rows)
        rows[number] = replace(rows[number], **changes)
        return replace(self, rows=tuple(rows))


def new_manifest(
    title: str,
    scenarios: Sequence[Scenario],
    notes: Sequence[str],
    *,
    simulated: bool,
    quick: bool,
    facts: Mapping[str, Any] | None = None,
) -> Manifest:
    """A suite of which nothing has run yet."""
    rows = tuple(Row(row, f"{number:02d}-{row.name}.json") for number, row in enumerate(scenarios, start=1))
    return Manifest(title, simulated, quick, tuple(notes), rows, now_text(), facts or {})


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write whole or not at all, and make sure that it survives a crash."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """The same for what people read. A link of that name in the directory is replaced, not followed."""
    try:
        write_whole(path, text, named=False)
    except OSError as error:
        reason = reason_of(error)
        raise KvspillError(
            f"cannot write {path}: {reason}; choose a writable place with --output-dir"
        ) from error


def save(folder: Path, manifest: Manifest) -> None:
    """Keep the state; a reader sees the old one or the new one, never half of it."""
    data = {"schema_version": SCHEMA_VERSION, "kvspill_version": __version__, **asdict(manifest)}
    write_json(folder / NAME, data)


def is_suite(path: str | Path) -> bool:
    """Whether this is the directory of a suite."""
    return (Path(path) / NAME).is_file()


def load(folder: Path, flag: str = "--resume ") -> Manifest:
    """Read a state back; anything else than one of ours is a usage error, which begins with the flag."""
    path = folder / NAME
    try:
        data = parse_json(read_input(path, MANIFEST))
        version = data["schema_version"]
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{flag}{folder}: written by another version ({shown(version)}); start a new suite"
            )
        manifest = TypeAdapter(Manifest).validate_python(data)
        # What could not be written back, such as NaN, was not written by us.
        json.dumps(asdict(manifest), allow_nan=False)
    except FileNotFoundError:
        raise UsageError(f"{flag}{folder}: holds no suite; name the directory of an earlier one") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        cause = _cause(error)
        raise UsageError(f"{flag}{folder}: {NAME} cannot be read ({cause}); start a new suite") from error
    _check_rows(folder, manifest, flag)
    return manifest


def _check_rows(folder: Path, manifest: Manifest, flag: str) -> None:
    """What a file says decides no place to write to: a suite writes to its directory alone."""
    where, files = f"{flag}{folder}: {NAME}", [row.file for row in manifest.rows]
    if not files:
        raise UsageError(f"{where} has no rows; start a new suite")
    kind, option = (manifest.facts.get(name, "") for name in ("kind", "option"))
    if kind not in ("", SUBMISSION, BACKENDS) or (kind == SUBMISSION and option not in tuple(OPTIONS)):
        raise UsageError(f"{where} is of no kind of suite ({shown(kind)} {shown(option)}); start a new suite")
    for number, row in enumerate(manifest.rows, start=1):
        if not _FILE.fullmatch(row.file) or files.count(row.file) > 1:
            raise UsageError(
                f"{where} names {shown(row.file)}, outside the directory or no result of a row; "
                "start a new suite"
            )
        own = next((key for key in OWN_KEYS if row.scenario.settings.get(key)), None)
        if own is not None:
            raise UsageError(f"{where}: row {number} has the setting {own}; start a new suite")


def directories(manifest: Manifest, *, of_finished: bool = False) -> list[str]:
    """Where the rows that are not finished store their entries, or all rows."""
    found: list[str] = []
    for row in manifest.rows:
        left_out = manifest.simulated or (row.finished and not of_finished)
        given = [] if left_out else row.scenario.settings.get("cache_dir") or []
        found += [given] if isinstance(given, str) else map(str, given)
    return list(dict.fromkeys(found))


def resume_command(folder: Path, manifest: Manifest) -> str:
    """What continues a suite: it names every directory that is written to."""
    here = Path.cwd()
    named = [path for path in directories(manifest) if Path(path).resolve() != here]
    flags = [word for path in named for word in ("--cache-dir", path)]
    return shlex.join(["kvspill", "suite", "--resume", str(folder), *flags])


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        return reason_of(error)
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"[:200]
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def read_result(folder: Path, row: Row) -> Result | None:
    """A row's result, or None where there is none that can be read."""
    try:
        return load_result(folder / row.file)
    except UsageError:
        return None


def settle(folder: Path, manifest: Manifest) -> Manifest:
    """Bring the rows in line with the files: a result counts even if the kill came before its mark.

    A row that failed stays so, whatever file lies there.
    """
    for number, row in enumerate(manifest.rows):
        complete = read_result(folder, row) is not None
        if row.finished and not complete:
            manifest = manifest.with_row(number, status=RowStatus.PENDING, reason="", seconds=None)
        elif row.status in (RowStatus.PENDING, RowStatus.INTERRUPTED) and complete:
            manifest = manifest.with_row(number, status=RowStatus.DONE, reason="")
    return manifest


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One suite at a time writes into a directory."""
    with contextlib.ExitStack() as undo:
        try:
            fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            undo.callback(_unlock, fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{folder}: another suite is running in it; wait or name another") from None
        except OSError as error:
            raise UsageError(
                f"{folder / _LOCK}: cannot be locked ({error.strerror}); name another --output-dir"
            ) from error
        yield


def _unlock(fd: int) -> None:
    """A signal that came before is not heard again: a disk that hangs must not hold up the end."""
    with contextlib.suppress(OSError):
        within(_UNLOCK_SECONDS_MAX, lambda: os.close(fd))
