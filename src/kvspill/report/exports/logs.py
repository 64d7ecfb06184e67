"""Reads the logs of --log-ops row by row."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError


def is_log(path: Path) -> bool:
    """Whether a file begins as parquet does."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror or error}); name a readable file"
        ) from None


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
        for batch in file.iter_batches(columns=list(columns)):
            yield from batch.to_pylist()
    except (OSError, ArrowException) as error:
        reason = " ".join(str(error).split())[:120]
        raise UsageError(f"{path}: no log of --log-ops ({reason}); name a whole one") from error
