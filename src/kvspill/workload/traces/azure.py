"""Azure LLM inference traces: CSV with a wall-clock time, context tokens and generated tokens per row."""

import re
from collections.abc import Mapping
from datetime import date
from functools import lru_cache, partial

from kvspill.records import NS_PER_SEC
from kvspill.workload.traces.files import RowError, csv_rows, tokens_of
from kvspill.workload.traces.format import SAMPLES, row_format
from kvspill.workload.traces.replay import Row

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_DAY_SECONDS = 86_400
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]?\d):([0-5]?\d|60)(?:\.(\d*))?", re.ASCII)


def _row(record: Mapping[str, str]) -> Row | None:
    context_tokens = tokens_of(record, "ContextTokens")
    row = Row(
        at_ns=wall_clock_ns(record["TIMESTAMP"]),
        context_tokens=context_tokens,
        generate_tokens=tokens_of(record, "GeneratedTokens"),
    )
    return row if context_tokens else None


def wall_clock_ns(text: str) -> int:
    """Nanoseconds of a time such as 2023-11-16 18:15:46.6805900; a time zone is left out of account."""
    try:
        day, clock = text.strip().replace("T", " ").split(" ", 1)
        read = _CLOCK.fullmatch(clock.split("+")[0].rstrip("Z "))
        if read is None:
            raise ValueError
        hours, minutes, seconds = map(int, read.groups()[:3])
        total = _day_number(day) * _DAY_SECONDS + hours * 3600 + minutes * 60 + seconds
        return total * NS_PER_SEC + int((read[4] or "").ljust(9, "0")[:9])
    except ValueError:
        raise RowError(f"TIMESTAMP {text[:40]!r} is not a time like 2023-11-16 18:15:46.6805900") from None


@lru_cache(maxsize=64)
def _day_number(text: str) -> int:
    return date.fromisoformat(text).toordinal()


rows = partial(csv_rows, columns=COLUMNS, parse=_row)

PLUGIN = row_format(
    "azure",
    "Azure LLM inference: CSV of times, context and generated tokens",
    rows,
    sample=SAMPLES / "azure.csv",
)
