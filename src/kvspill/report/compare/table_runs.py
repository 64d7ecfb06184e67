"""Runs from summaries in XLSX and CSV: a row each."""

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from kvspill.errors import UsageError
from kvspill.inputs import MIB, SUMMARY, TABLE_CELLS_MAX, TABLE_ROWS_MAX, TooMuch, parse_json
from kvspill.report.columns import COLUMNS, OTHER_SETTINGS, PARAMETERS, finite, with_derived
from kvspill.report.compare.run import TABLE, Run, config_in_name, group_of
from kvspill.report.settings import flatten, with_defaults
from kvspill.result.ranking import faults_of_warnings
from kvspill.result.reading import read_whole

TABLE_SUFFIXES = (".xlsx", ".csv")
_ROWS_AND_TEXTS = ("xl/worksheets/", "xl/sharedStrings")
"""The parts of a workbook that grow with its rows."""


def table_runs(path: Path) -> list[Run]:
    """Every row of a summary as a run."""
    raw = read_whole(path, SUMMARY)
    read = _xlsx_rows if path.suffix.lower() == ".xlsx" else _csv_rows
    try:
        return _table_runs(path, _bounded(read(path, raw)))
    except TooMuch as error:
        raise UsageError(f"{path}: holds too much for a summary ({error}); export it again") from None


def _bounded(found: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows that are not empty, as long as they are no more than a table can have."""
    rows, cells = [], 0
    for number, row in enumerate(found, start=1):
        cells += len(row)
        if number > TABLE_ROWS_MAX or cells > TABLE_CELLS_MAX:
            raise TooMuch(f"more than {TABLE_ROWS_MAX:,} rows or {TABLE_CELLS_MAX:,} cells")
        if any(row):
            rows.append(row)
    return rows


def _xlsx_rows(path: Path, raw: bytes) -> Iterator[Sequence[Any]]:
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise UsageError(
            f"{path}: XLSX needs openpyxl, not installed here: `pip install 'kvspill[report]'`, or give CSV"
        ) from None
    try:
        file = io.BytesIO(raw)
        _check_parts(file)
        sheets = load_workbook(file, read_only=True, data_only=True).worksheets
        if sheets:
            # The dimension is a claim, up to which every row would be filled with empty cells.
            sheets[0].reset_dimensions()
            yield from sheets[0].iter_rows(values_only=True)
    except (GeneratorExit, TooMuch):
        raise
    except Exception as error:
        # openpyxl lets zipfile, XML and its own errors through; all of them mean a damaged file.
        text = f"{type(error).__name__}: {error}"[:200]
        raise UsageError(f"{path}: not a readable XLSX file ({text}); copy or export it again") from None


def _check_parts(file: IO[bytes]) -> None:
    """Refuse a workbook that unpacks to more than a summary; its parts can't be larger than they say."""
    with zipfile.ZipFile(file) as packed:
        for part in packed.infolist():
            nbytes = SUMMARY.max_bytes if part.filename.startswith(_ROWS_AND_TEXTS) else MIB
            if part.file_size > nbytes:
                raise TooMuch(f"{part.filename[:60]} unpacks to {part.file_size:,} bytes")


def _csv_rows(path: Path, raw: bytes) -> Iterator[Sequence[Any]]:
    try:
        yield from csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
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
    found = ((column.key, _number(row.get(column.title))) for column in COLUMNS)
    cells = {name: _setting(row[title]) for name, title in PARAMETERS.items() if title in row}
    said = config_in_name(name)
    config = {**cells, **{key: value for key, value in said.items() if cells.get(key) is None}}
    others = _others(row.get(OTHER_SETTINGS))
    facts = dict(flatten("config", with_defaults(others))) if others is not None else {}
    cautions = tuple(str(row.get("Warnings") or "").split())
    for title in ("Kvspill Version", "Simulated"):
        if row.get(title) not in (None, ""):
            facts[title.lower().replace(" ", "_")] = row[title]
    return Run(
        name=name,
        group=group_of(name),
        kind=TABLE,
        config=config,
        values=with_derived({key: value for key, value in found if value is not None}),
        incomplete="ended early" if _is_true(row.get("Incomplete")) else None,
        simulated=_is_true(row.get("Simulated")),
        seconds=_number(row.get("Measured Time (s)")),
        digest=str(row["Digest"]) if row.get("Digest") else None,
        others=others,
        facts=facts,
        cautions=cautions,
        faults=str(row["Faults"]) if row.get("Faults") else faults_of_warnings(cautions),
    )


def _is_true(cell: Any) -> bool:
    return str(cell or "").lower() in ("true", "1")


def _others(cell: Any) -> dict[str, Any] | None:
    """Settings that the table's writer noted as JSON; None where it noted none or the cell is damaged."""
    try:
        found = parse_json(cell) if isinstance(cell, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int) and value.bit_length() > 1000:
        return None
    return finite(value)


def _setting(value: Any) -> Any:
    number = _number(value)
    return (None if value == "" else value) if number is None else number
