"""Reading recorded files as streams: JSON lines, CSV by column names; a bad row is named or counted."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from kvspill.errors import UsageError
from kvspill.inputs import (
    DEPTH_MAX,
    IDLE_BYTES_MAX,
    IDLE_ROWS_MAX,
    ROW_BYTES_MAX,
    TooMuch,
    check_depth,
    check_values,
)
from kvspill.workload.traces.packed import BROKEN_PACKING, open_bytes, unreadable

T = TypeVar("T")


TOKENS_MAX = 10_000_000
_EXAMPLES_MAX = 3


class RowError(Exception):
    """A row that cannot be used, and why."""


@dataclass(slots=True)
class RowLog:
    """What was found while reading. A row that cannot be used ends the run, or is skipped and counted."""

    skip: bool = False
    skipped: int = 0
    empty: int = 0
    """Rows without a single token to cache, such as the failed requests of a recording."""
    orphans: int = 0
    """Rows that go on from one that is not in the trace, was forgotten or was continued by another."""
    examples: list[str] = field(default_factory=list)
    line: int = 0
    """The line of the row that was read last."""

    def bad(self, path: Path, where: int | str, reason: object) -> None:
        """Count a row that cannot be used, or name it and end the run."""
        if self.skip:
            self.skipped += 1
            if len(self.examples) == _EXAMPLES_MAX:
                return
        text = " ".join(f"{path}:{where}: {reason}".split())
        if not self.skip:
            raise UsageError(f"{text}; correct that row or give --skip-bad-rows")
        self.examples.append(text)


class Idle:
    """Counts what is read of a trace without a request in it, and ends the run where that goes on and on."""

    def __init__(self, path: Path, log: RowLog):
        self._path = path
        self._log = log
        self._useless = 0
        self._rows = 0
        self._nbytes = 0

    def read(self, nbytes: int) -> None:
        """Count bytes before it is known whether they are of any use."""
        self._rows += 1
        self._nbytes += nbytes
        if self._rows > IDLE_ROWS_MAX or self._nbytes > IDLE_BYTES_MAX:
            raise UsageError(
                f"{self._path}: no request in {self._rows:,} rows of {self._nbytes:,} bytes; "
                "is it a trace of that format?"
            )

    def handed_out(self) -> None:
        """Note that a row was taken; one that its reader counted neither as bad nor as empty was of use."""
        useless = self._log.skipped + self._log.empty
        if useless == self._useless:
            self._rows = self._nbytes = 0
        self._useless = useless


def lines(path: Path, flag: str, log: RowLog) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers."""
    with open_bytes(path, flag) as file:
        yield from lines_of(file, path, flag, log)


def lines_of(file: IO[bytes], path: Path, flag: str, log: RowLog) -> Iterator[tuple[int, bytes]]:
    """The same of a file that is open already."""
    number = 0
    too_long = False
    idle = Idle(path, log)
    while True:
        try:
            line = file.readline(ROW_BYTES_MAX)
        except BROKEN_PACKING:
            log.bad(path, number + 1, "the compressed file ends or breaks in the middle")
            return
        except OSError as error:
            unreadable(path, flag, error)
        if not line:
            return
        idle.read(len(line))
        # What follows a part that was too long is the rest of the same line.
        rest, too_long = too_long, len(line) == ROW_BYTES_MAX and not line.endswith(b"\n")
        if rest:
            continue
        number += 1
        if too_long:
            log.bad(
                path,
                number,
                f"the line is longer than {ROW_BYTES_MAX >> 20} MiB (is it a trace of that format, "
                "one row per line?)",
            )
        elif not line.isspace():
            yield number, line.rstrip(b"\r\n")
            idle.handed_out()


def json_rows(
    path: Path, flag: str, log: RowLog, parse: Callable[[Mapping[str, Any]], T | None]
) -> Iterator[T]:
    """The rows of a file of JSON lines; one for which parse gives None is empty."""
    return _parsed(path, log, lines(path, flag, log), lambda line: parse(json_object(line)))


def json_object(text: bytes | str) -> Mapping[str, Any]:
    """The JSON object in a text, or a RowError that says what is wrong with it."""
    try:
        check_values(text)
        record = json.loads(text)
        if _openings(text) > DEPTH_MAX:
            check_depth(record)
    except TooMuch as error:
        raise RowError(f"broken JSON ({error})") from error
    except json.JSONDecodeError as error:
        raise RowError(f"broken JSON ({error.msg.removesuffix(' at')} at column {error.colno})") from error
    except UnicodeDecodeError as error:
        raise RowError("broken JSON (not UTF-8)") from error
    except RecursionError as error:
        raise RowError("broken JSON (nested too deeply)") from error
    except ValueError as error:
        raise RowError("broken JSON (a number is too long)") from error
    if not isinstance(record, dict):
        raise RowError(f"holds a {type(record).__name__}, not an object with keys")
    return record


def _openings(text: bytes | str) -> int:
    """Brackets that open: nothing is nested deeper than that."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def csv_rows(
    path: Path,
    flag: str,
    log: RowLog,
    columns: tuple[str, ...],
    parse: Callable[[Mapping[str, str]], T | None],
) -> Iterator[T]:
    """The rows of a CSV file by the names of its columns, whatever their order and case."""
    found = lines(path, flag, log)
    try:
        header = _csv_fields(next(found, (0, b""))[1])
    except RowError as error:
        raise UsageError(f"{path}:1: {error}; its first line must name the columns") from error
    spelled = {name.lower(): name for name in columns}
    names = [spelled.get(name.strip().lower(), name.strip().lower()) for name in header]
    missing = [name for name in columns if name not in names]
    if missing:
        raise UsageError(
            f"{path}:1: column {missing[0]!r} is missing; its first line must name the columns "
            f"{','.join(columns)}"
        )
    twice = [name for name in columns if names.count(name) > 1]
    if twice:
        raise UsageError(f"{path}:1: column {twice[0]!r} is named twice; leave one of them")

    def row(line: bytes) -> T | None:
        fields = _csv_fields(line)
        if len(fields) != len(names):
            raise RowError(f"has {len(fields)} fields, not the {len(names)} that the first line names")
        return parse(dict(zip(names, fields, strict=True)))

    yield from _parsed(path, log, found, row)


def _parsed(
    path: Path, log: RowLog, numbered: Iterator[tuple[int, bytes]], parse: Callable[[bytes], T | None]
) -> Iterator[T]:
    """The rows of lines, each with its number noted; bad and empty ones are counted."""
    for number, line in numbered:
        try:
            row = parse(line)
        except RowError as error:
            log.bad(path, number, error)
            continue
        if row is None:
            log.empty += 1
        else:
            log.line = number
            yield row


def _csv_fields(line: bytes) -> list[str]:
    # Quoted line breaks appear in none of the formats, so a line is a row.
    text = line.decode("utf-8-sig", "replace")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise RowError(f"broken CSV ({error})") from error


def tokens_of(record: Mapping[str, Any], name: str) -> int:
    """A number of tokens, 0 or more."""
    value = _number(record, name)
    if value != int(value):
        raise RowError(f"{name} {value!r} is not a whole number")
    if not 0 <= value <= TOKENS_MAX:
        raise RowError(f"{name} {value!r} is not within 0 to {TOKENS_MAX:,}")
    return int(value)


def time_ns_of(record: Mapping[str, Any], name: str, unit_ns: int) -> int:
    """A time in nanoseconds from a number of units."""
    value = _number(record, name)
    if abs(value) * unit_ns > _LATEST_NS:
        raise RowError(f"{name} {value!r} is not a time")
    return value * unit_ns if isinstance(value, int) else round(value * unit_ns)


_LATEST_NS = 200 * 366 * 86_400 * 1_000_000_000
"""Times are counted from the recording's start or from 1970; none lies two hundred years after it."""


_LARGEST_INT = 10**18
"""No time, count or length comes near it; what is longer than a float can hold must not reach arithmetic."""


def _number(record: Mapping[str, Any], name: str) -> int | float:
    if name not in record:
        raise RowError(f"{name} is missing")
    value = record[name]
    if isinstance(value, str):
        if "_" in value:
            # Python reads 3_74 as 374; in a recording it is a mistake.
            raise RowError(f"{name} {value[:40]!r} is not a number")
        try:
            value = int(value) if value.strip().lstrip("-").isdigit() else float(value)
        except ValueError:
            raise RowError(f"{name} {value[:40]!r} is not a number") from None
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        raise RowError(f"{name} {str(value)[:40]!r} is out of range")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RowError(f"{name} {str(value)[:40]!r} is not a number")
    return value


def hash_ids_of(record: Mapping[str, Any], name: str = "hash_ids") -> tuple[str, ...]:
    """The listed block hashes as strings."""
    return tuple([str(item) for item in id_list_of(record, name)])


def content_ids_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Block hashes of contents alone as strings; what comes again in a row is another block.

    The KV of a block depends on all before it, so equal content in a later place has its own.
    """
    ids = [str(item) for item in id_items_of(record)]
    if len(set(ids)) == len(ids):
        return tuple(ids)
    counts: dict[str, int] = {}
    names: dict[str, None] = {}
    for item in ids:
        name = item
        while name in names:
            counts[item] = counts.get(item, 1) + 1
            name = f"{item}@{counts[item]}"
        names[name] = None
    return tuple(names)


def id_list_of(record: Mapping[str, Any], name: str = "hash_ids") -> list[int | str]:
    """The listed block ids as they stand, each standing for all before it; none where none is listed."""
    ids = id_items_of(record, name)
    _check_distinct(ids, name)
    return ids


def id_items_of(record: Mapping[str, Any], name: str = "hash_ids") -> list[int | str]:
    """The listed ids as they stand; none where none is listed."""
    ids = record.get(name)
    if ids is None:
        return []
    # Nearly all traces have numbers alone, and there are millions of them.
    if not isinstance(ids, list) or not ({*map(type, ids)} <= {int} or all(map(_is_block_id, ids))):
        raise RowError(f"{name} is not a list of block ids")
    return ids


def _check_distinct(ids: list[int | str], name: str) -> None:
    # 1 and "1" are one key.
    texts: list[int | str] = ids if len(set(map(type, ids))) < 2 else [str(item) for item in ids]
    if len(set(texts)) == len(texts):
        return
    seen: set[int | str] = set()
    for place, item in enumerate(texts):
        if item in seen:
            raise RowError(
                f"{name} lists block {str(item)[:40]} again in place {place + 1}, but an id stands for "
                "a block and all before it"
            )
        seen.add(item)


def _is_block_id(item: object) -> bool:
    # Hashes are numbers or plain text; anything else could not be a key everywhere.
    return type(item) is int or (type(item) is str and item.isascii() and item.isprintable())
