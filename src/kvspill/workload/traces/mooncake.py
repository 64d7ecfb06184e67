"""Mooncake traces: JSON lines with times in milliseconds and global hashes of 512-token blocks."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from kvspill.records import NS_PER_MS
from kvspill.workload.traces.files import hash_ids_of, json_rows, time_ns_of, tokens_of
from kvspill.workload.traces.format import SAMPLES, row_format
from kvspill.workload.traces.replay import Row

BLOCK_TOKENS = 512


def _row(record: Mapping[str, Any]) -> Row | None:
    context_tokens = tokens_of(record, "input_length")
    row = Row(
        at_ns=time_ns_of(record, "timestamp", NS_PER_MS),
        context_tokens=context_tokens,
        generate_tokens=tokens_of(record, "output_length"),
        blocks=hash_ids_of(record),
        block_tokens=BLOCK_TOKENS,
    )
    return row if context_tokens else None


rows = partial(json_rows, parse=_row)

PLUGIN = row_format(
    "mooncake",
    "Mooncake: JSON lines with hashes of 512-token blocks",
    rows,
    sample=SAMPLES / "mooncake.jsonl",
    lists_blocks=True,
)
