"""Reads the logs of --log-ops row by row."""

import re
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


_NAMES = re.compile(r"list<\w+: (string|large_string|dictionary<values=(large_)?string,[^<>]*>)( not null)?>")
_MAY_LACK = ("error", "failure", "opening", "blocks", "block_tokens")
_MOST = {"_tokens": 1 << 24, "_bytes": 1 << 50, "pieces": 1 << 20, "_ns": 1 << 62}
"""More of it than any operation or request has; an export counts as far as these numbers say."""
ROWS_MAX = 1 << 23
NAMES_MAX = 1 << 26
LIST_MAX = 1 << 20
"""Rows of a log, names of blocks in all of them and in one: a small file can unfold to any number."""
_CHUNK_VALUES_MAX = 1 << 24
_CHUNK_BYTES_MAX = 1 << 28
"""Of one column in one group of rows; a run writes far smaller ones."""
_TEXT_BYTES_MAX = 1 << 12
_BATCH_ROWS = 4096
_NAMES_AT_ONCE = 1 << 16


def _fits(name: str, kind: str) -> bool:
    wanted = COLUMNS[name]
    return bool(_NAMES.fullmatch(kind)) if wanted == "names" else kind.removeprefix("large_") == wanted


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
        texts = _texts(path, file.metadata, columns)
        # Of equal texts one is kept, as in the file.
        file = pq.ParquetFile(path, read_dictionary=texts)
        kept: dict[str, str] = {}
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
            at_once = max(1, _NAMES_AT_ONCE // max(1, _longest_list(path, batch)))
            for start in range(0, batch.num_rows, at_once):
                for row in _unfolded(batch.slice(start, at_once)).to_pylist():
                    _check(path, row)
                    if row.get("blocks"):
                        row["blocks"] = [kept.setdefault(name, name) for name in row["blocks"]]
                    yield row
    except (OSError, ArrowException) as error:
        reason = " ".join(str(error).split())[:120]
        raise UsageError(f"{path}: no log of --log-ops ({reason}); name a whole one") from error


def _texts(path: Path, metadata: Any, columns: Sequence[str]) -> list[str]:
    """The columns of texts, once it is known that no column unfolds to more than a log can hold."""
    texts, names = [], 0
    if metadata.num_rows > ROWS_MAX:
        raise _too_much(path, f"{metadata.num_rows:,} rows", ROWS_MAX)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for place in range(metadata.num_columns):
        column = metadata.schema.column(place)
        name = column.path.split(".")[0]
        if name not in columns:
            continue
        if column.physical_type == "BYTE_ARRAY":
            texts.append(column.path)
        chunks = [group.column(place) for group in groups]
        for chunk in chunks:
            if chunk.num_values > _CHUNK_VALUES_MAX:
                raise _too_much(path, f"{chunk.num_values:,} {name} in a group of rows", _CHUNK_VALUES_MAX)
            if chunk.total_uncompressed_size > _CHUNK_BYTES_MAX:
                size = f"{chunk.total_uncompressed_size:,} bytes of {name} in a group of rows"
                raise _too_much(path, size, _CHUNK_BYTES_MAX)
        names += sum(chunk.num_values for chunk in chunks) if COLUMNS[name] == "names" else 0
    if names > NAMES_MAX:
        raise _too_much(path, f"{names:,} names of blocks", NAMES_MAX)
    return texts


def _unfolded(batch: Any) -> Any:
    """With every text written out, from which rows are made much faster."""
    import pyarrow as pa
    from pyarrow.types import is_dictionary, is_list

    columns = [
        column.cast(pa.list_(pa.string()))
        if is_list(column.type)
        else column.dictionary_decode()
        if is_dictionary(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _longest_list(path: Path, batch: Any) -> int:
    """The most names in a row; a longer text than any name is refused."""
    import pyarrow.compute as pc
    from pyarrow.types import is_dictionary, is_list

    longest = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_list(column.type):
            longest = max(longest, pc.max(pc.list_value_length(column)).as_py() or 0)
            if longest > LIST_MAX:
                raise _too_much(path, f"a row with {longest:,} {name}", LIST_MAX)
            column = column.values
        if is_dictionary(column.type):
            nbytes = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
            if nbytes > _TEXT_BYTES_MAX:
                raise _too_much(path, f"a row whose {name} takes {nbytes:,} bytes", _TEXT_BYTES_MAX)
    return longest


def _too_much(path: Path, what: str, most: int) -> UsageError:
    return UsageError(
        f"{path}: has {what}, more than the {most:,} of any export; name the log of a shorter run"
    )
