"""BurstGPT traces: CSV by column names, times in seconds; newer ones name the session of a conversation."""

from collections.abc import Mapping
from functools import partial

from kvspill.records import NS_PER_SEC
from kvspill.workload.traces.files import csv_rows, time_ns_of, tokens_of
from kvspill.workload.traces.format import SAMPLES, row_format
from kvspill.workload.traces.replay import Row

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
_SESSION = "session id"


def _row(record: Mapping[str, str]) -> Row | None:
    """A row; requests that failed in the recording have no tokens and are left out as empty."""
    context_tokens = tokens_of(record, "Request tokens")
    session = record.get(_SESSION, "").strip() or None
    row = Row(
        at_ns=time_ns_of(record, "Timestamp", NS_PER_SEC),
        context_tokens=context_tokens,
        generate_tokens=tokens_of(record, "Response tokens"),
        name=session,
        continues=session,
    )
    return row if context_tokens else None


rows = partial(csv_rows, columns=COLUMNS, parse=_row)

PLUGIN = row_format(
    "burstgpt",
    "BurstGPT: CSV of times and tokens, by sessions",
    rows,
    sample=SAMPLES / "burstgpt.csv",
)
