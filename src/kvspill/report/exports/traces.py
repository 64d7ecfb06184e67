"""A log of requests back into a trace: what each asked for and when, as JSON lines with block hashes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError
from kvspill.measure.oplog import requests_path
from kvspill.records import NS_PER_MS
from kvspill.report.exports.logs import LIST_MAX, NAMES_MAX, log_rows

_COLUMNS = (
    *("user", "conversation", "intended_ns", "context_tokens", "generated_tokens"),
    *("before_tokens", "opening", "opening_tokens", "blocks", "block_tokens"),
)


_IDS_MAX = 1 << 23


class _Ids(dict[str, int]):
    """Small numbers for names, in the order in which they come."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def trace_lines(log: Path, block_tokens: int) -> Iterator[str]:
    """The requests of an op log by their intended times, in the format that --trace kvcache reads.

    block_tokens: the size of blocks where the run's workload did not list its own.
    """
    path = requests_path(log) if requests_path(log).exists() else log
    rows = sorted(log_rows(path, _COLUMNS), key=lambda row: row["intended_ns"])
    if not rows:
        raise UsageError(f"{path}: holds no request; name the log of a run that served some")
    ids, first_ns = _Ids(), rows[0]["intended_ns"]
    sizes = {row["block_tokens"] for row in rows if row["blocks"]}
    if len(sizes) > 1:
        raise UsageError(
            f"{path}: its requests list blocks of {', '.join(map(str, sorted(sizes)))} tokens, and a trace "
            "has one size; name the log of another run"
        )
    size = sizes.pop() if sizes else block_tokens
    total = 0
    for row in rows:
        count = len(row["blocks"] or ()) or _whole_context(row) // size
        total += count
        for number, most, what in (
            (count, LIST_MAX, "blocks in a request"),
            (total, NAMES_MAX, "blocks"),
            (len(ids), _IDS_MAX, "different blocks"),
        ):
            if number > most:
                raise UsageError(
                    f"{path}: has more than {most:,} {what} of {size} tokens, which no trace takes; give a "
                    "larger --block-tokens, or name a shorter log"
                )
        yield json.dumps(
            {
                "timestamp": (row["intended_ns"] - first_ns) / NS_PER_MS,
                "input_length": _whole_context(row),
                "output_length": row["generated_tokens"],
                "block_size": size,
                "hash_ids": [ids[name] for name in _blocks(row, size)],
            }
        )


def _whole_context(row: dict[str, Any]) -> int:
    if row["blocks"]:
        return int(row["context_tokens"])
    return int(row["opening_tokens"] + row["before_tokens"] + row["context_tokens"])


def _blocks(row: dict[str, Any], size: int) -> Iterator[str]:
    """Full blocks of the context: of the prompt that conversations share, then of the conversation."""
    if row["blocks"]:
        yield from row["blocks"]
        return
    shared = row["opening_tokens"] // size
    for place in range(_whole_context(row) // size):
        if place < shared:
            yield f"{row['opening']}/{place}"
        else:
            yield f"{row['user']}/{row['conversation']}/{place}"
