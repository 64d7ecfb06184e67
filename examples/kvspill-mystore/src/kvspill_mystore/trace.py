"""The trace format simplecsv: CSV with the columns seconds, context and generate."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from kvspill.records import NS_PER_SEC
from kvspill.workload.traces.files import RowLog, csv_rows, time_ns_of, tokens_of
from kvspill.workload.traces.format import row_format
from kvspill.workload.traces.replay import Row

COLUMNS = ("seconds", "context", "generate")


def rows(path: Path, flag: str, log: RowLog) -> Iterator[Row]:
    """The rows of the file in its own order."""
    return csv_rows(path, flag, log, COLUMNS, _row)


def _row(record: Mapping[str, str]) -> Row | None:
    context_tokens = tokens_of(record, "context")
    row = Row(
        at_ns=time_ns_of(record, "seconds", NS_PER_SEC),
        context_tokens=context_tokens,
        generate_tokens=tokens_of(record, "generate"),
    )
    return row if context_tokens else None


PLUGIN = row_format(
    "simplecsv",
    "CSV of seconds, context and generated tokens",
    rows,
    sample=Path(__file__).parent / "sample.csv",
)
