"""CSV and XLSX tables: one row per result, with its parameters, its figures and its warnings."""

import csv
import importlib.util
import io
import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kvspill.dates import now_text
from kvspill.errors import KvspillError, UsageError, reason_of
from kvspill.outputs import write_file
from kvspill.report.columns import COLUMNS, OTHER_SETTINGS, PARAMETERS, figures
from kvspill.report.settings import other_settings
from kvspill.result.ranking import faults_text
from kvspill.result.schema import Result
from kvspill.texts import cell

Cell = str | int | float | bool | None
Row = dict[str, Cell]

_CELL_CHARACTERS = 32_767


def row_of(name: str, result: Result) -> Row:
    """One result as a row; what was not measured stays empty."""
    values = figures(result)
    return {
        "Filename": name,
        **{column.title: values.get(column.key) for column in COLUMNS},
        **{title: _plain(result.config.get(name)) for name, title in PARAMETERS.items()},
        OTHER_SETTINGS: _cut(json.dumps(other_settings(result.config), sort_keys=True, ensure_ascii=False)),
        "Users In Window": result.window.users,
        "Measured Time (s)": result.window.measured_seconds,
        "Trials": result.trials.count if result.trials else 1,
        "Simulated": result.simulated,
        "Incomplete": result.incomplete,
        "Faults": faults_text(result),
        "Warnings": " ".join(item.code for item in result.warnings),
        "Digest": result.digest,
        "Created": result.created_at,
        "Kvspill Version": result.kvspill_version,
    }


def _cut(text: str) -> str:
    """A spreadsheet's cell ends here; a cut cell is no JSON any more and is read as not recorded."""
    return text if len(text) <= _CELL_CHARACTERS else f"{text[: _CELL_CHARACTERS - 1]}…"


def _plain(value: Any) -> Cell:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def csv_text(rows: Iterable[Mapping[str, Cell]]) -> str:
    """The rows as CSV. Text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    rows = list(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    titles = list(rows[0]) if rows else []
    writer.writerow(titles)
    for row in rows:
        writer.writerow([_harmless(row[title]) for title in titles])
    return text.getvalue()


def _harmless(value: Cell) -> Cell:
    return cell(value) if isinstance(value, str) else value


def write_csv(path: str | os.PathLike[str], rows: Iterable[Row]) -> Path:
    return write_file(path, csv_text(rows))


def check_table(path: str | os.PathLike[str]) -> None:
    """Refuse, before anything is measured, a table that could not be written at the end."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"--xlsx-output {target}: a directory; name a file such as {target / 'result.xlsx'}")
    if target.suffix.lower() == ".csv":
        return
    if target.suffix.lower() != ".xlsx":
        raise UsageError(
            f"--xlsx-output {target}: neither .xlsx nor .csv; give the file one of these endings"
        )
    if importlib.util.find_spec("openpyxl") is None:
        raise UsageError(
            f"--xlsx-output {target}: needs openpyxl, not installed here: `pip install 'kvspill[report]'`, "
            "or name a .csv file"
        )


def write_table(path: str | os.PathLike[str], rows: Iterable[Row]) -> Path:
    """CSV or XLSX, by the file's name."""
    return (write_csv if Path(path).suffix.lower() == ".csv" else write_xlsx)(path, rows)


def write_xlsx(path: str | os.PathLike[str], rows: Iterable[Row]) -> Path:
    """The rows as one sheet: frozen header, text never a formula."""
    try:
        from openpyxl import Workbook
        from openpyxl.styles import Font
    except ImportError:
        raise UsageError(
            "XLSX needs openpyxl, which is not installed: `pip install 'kvspill[report]'`, or write CSV"
        ) from None
    rows = list(rows)
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "results"
    sheet.freeze_panes = "B2"
    titles = list(rows[0]) if rows else []
    for number, title in enumerate(titles, start=1):
        sheet.cell(1, number, title).font = Font(bold=True)
    for line, row in enumerate(rows, start=2):
        for number, title in enumerate(titles, start=1):
            value = row[title]
            if isinstance(value, str):
                sheet.cell(line, number, cell(value)).data_type = "s"
            else:
                sheet.cell(line, number, value)
    content = io.BytesIO()
    try:
        book.save(content)
    except (ValueError, OverflowError, struct.error) as error:
        # A workbook is a ZIP file, whose dates go from 1980 to 2107.
        raise KvspillError(
            f"cannot write {path}: it cannot hold the date of this machine's clock ({now_text()}); set the "
            "clock, or name a .csv file"
        ) from error
    except OSError as error:
        # Its sheets are put together in files.
        raise KvspillError(
            f"cannot write {path}: no room for temporary files ({reason_of(error)}); set TMPDIR to a place "
            "that has some, or name a .csv file"
        ) from error
    return write_file(path, content.getvalue())
