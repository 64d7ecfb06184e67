"""Qwen-Bailian traces: JSON lines with times in seconds, 16-token blocks and the chat that each continues."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from kvspill.records import NS_PER_SEC
from kvspill.workload.traces.files import (
    RowError,
    content_ids_of,
    json_rows,
    time_ns_of,
    tokens_of,
)
from kvspill.workload.traces.format import SAMPLES, row_format
from kvspill.workload.traces.replay import Row

BLOCK_TOKENS = 16
_NO_PARENT = (-1, "-1", None)


def _row(record: Mapping[str, Any]) -> Row | None:
    context_tokens = tokens_of(record, "input_length")
    parent = _chat(record, "parent_chat_id")
    row = Row(
        at_ns=time_ns_of(record, "timestamp", NS_PER_SEC),
        context_tokens=context_tokens,
        generate_tokens=tokens_of(record, "output_length"),
        blocks=content_ids_of(record),
        block_tokens=BLOCK_TOKENS,
        name=_chat(record, "chat_id"),
        continues=None if parent in _NO_PARENT else parent,
    )
    return row if context_tokens else None


def _chat(record: Mapping[str, Any], name: str) -> int | str | None:
    value = record.get(name)
    if value is not None and type(value) is not int and type(value) is not str:
        raise RowError(f"{name} {str(value)[:40]!r} is not the id of a chat")
    return value


rows = partial(json_rows, parse=_row)

PLUGIN = row_format(
    "bailian",
    "Qwen-Bailian: JSON lines with 16-token blocks and the chat that each continues",
    rows,
    sample=SAMPLES / "bailian.jsonl",
    lists_blocks=True,
)
