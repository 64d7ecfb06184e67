"""Reads the logs of --log-ops row by row."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError, reason_of
from kvspill.inputs import open_input
from kvspill.measure.oplog import COLUMNS
from kvspill.records import Verb

VERBS = tuple(verb.value for verb in Verb)


def is_log(path: Path) -> bool:
    """Whether a file begins as parquet does."""
    try:
        with open_input(path) as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason_of(error)}); name a readable file") from None


_MAY_LACK = ("error", "failure", "opening", "blocks", "block_tokens")
_MOST = {"_tokens": 1 << 24, "_bytes": 1 << 50, "pieces": 1 << 20, "_ns": 1 << 62}
"""More of it than any operation or request has; an export counts as far as these numbers say."""


def _fits(name: str, kind: str) -> bool:
    wanted = COLUMNS[name]
    return kind.startswith("list<") if wanted == "names" else kind.removeprefix("large_") == wanted


def _check(path: Path, row: dict[str, Any]) -> None:
    """Refuse a row that no run has written."""
    for name, value in row.items():
        if value is None:
            wrong = name not in _MAY_LACK
        elif isinstance(value, int):
            most = next((limit for end, limit in _MOST.items() if name.endswith(end)), 1 << 62)
            wrong = not (-most if name.endswith("_ns") else 0) <= value <= most
        else:
            wrong = name == "verb" and value not in VERBS
        if wrong:
            raise UsageError(
                f"{path}: a row has {name} {str(value)[:40]!r}, as no run writes it; name a log of --log-ops"
            )


def log_rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows with these columns, in the order of the log."""
    try:
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    except ImportError:
        raise UsageError(
            f"{path}: needs pyarrow, which is not installed; pip install 'kvspill[log]'"
        ) from None
    try:
        file = pq.ParquetFile(path)
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if missing:
            raise UsageError(
                f"{path}: has no column {missing[0]}; name a log of --log-ops that this version wrote"
            )
        for name in columns:
            if not _fits(name, str(file.schema_arrow.field(name).type)):
                raise UsageError(f"{path}: column {name} is of another type; name a log of --log-ops")
        for batch in file.iter_batches(columns=list(columns)):
            for row in batch.to_pylist():
                _check(path, row)
                yield row
    except (OSError, ArrowException) as error:
        reason = " ".join(str(error).split())[:120]
        raise UsageError(f"{path}: no log of --log-ops ({reason}); name a whole one") from error
