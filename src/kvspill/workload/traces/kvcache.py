"""Traces of KVCache.AI's hit-rate simulator: JSON lines that name their block size; times are optional."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvspill.records import NS_PER_MS
from kvspill.workload.traces.files import RowError, RowLog, id_items_of, json_rows, time_ns_of, tokens_of
from kvspill.workload.traces.format import SAMPLES, row_format
from kvspill.workload.traces.replay import Row

_BLOCK_TOKENS_MAX = 1_000_000


def rows(path: Path, flag: str, log: RowLog) -> Iterator[Row]:
    """The rows of the file in its own order; without times, each comes with the one before it."""
    block_tokens = before_ns = 0

    def row(record: Mapping[str, Any]) -> Row | None:
        nonlocal block_tokens, before_ns
        size = tokens_of(record, "block_size")
        if not 1 <= size <= _BLOCK_TOKENS_MAX:
            raise RowError(f"block_size {size} is not within 1 to {_BLOCK_TOKENS_MAX:,}")
        if block_tokens not in (0, size):
            raise RowError(f"block_size {size} differs from the {block_tokens} of the rows before")
        if record.get("hash_ids") is None:
            raise RowError("hash_ids is missing: nothing says which blocks it asks for")
        if record.get("timestamp") is not None:
            before_ns = time_ns_of(record, "timestamp", NS_PER_MS)
        block_tokens = size
        return _row(record, size, before_ns)

    return json_rows(path, flag, log, row)


def _row(record: Mapping[str, Any], block_tokens: int, at_ns: int) -> Row | None:
    context_tokens = tokens_of(record, "input_length")
    blocks = _chained(id_items_of(record))
    row = Row(
        at_ns=at_ns,
        context_tokens=context_tokens,
        generate_tokens=tokens_of(record, "output_length") if "output_length" in record else 0,
        blocks=blocks,
        block_tokens=block_tokens,
        block_fill=_fill(record, len(blocks), block_tokens, context_tokens),
    )
    return row if context_tokens else None


def _fill(record: Mapping[str, Any], blocks: int, block_tokens: int, context_tokens: int) -> tuple[int, ...]:
    """Tokens in each block, where the row says so; together no more than its input."""
    given = record.get("block_tokens")
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) != blocks:
        raise RowError("block_tokens is not a list with a number for each of the hash_ids")
    if not all(type(tokens) is int and 1 <= tokens <= block_tokens for tokens in given):
        raise RowError(f"block_tokens has a number that is not within 1 to the block_size {block_tokens}")
    if sum(given) > context_tokens:
        raise RowError(f"block_tokens are {sum(given)} together, more than the input_length {context_tokens}")
    return tuple(given)


def _chained(ids: list[int | str]) -> tuple[str, ...]:
    """Keys of blocks: an id names a block only behind all ids before it."""
    keys = []
    before = b""
    for item in ids:
        before = hashlib.blake2b(before + str(item).encode(), digest_size=12).digest()
        keys.append(before.hex())
    return tuple(keys)


PLUGIN = row_format(
    "kvcache",
    "KVCache.AI's hit-rate simulator: JSON lines with block_size, hash_ids and input_length",
    rows,
    sample=SAMPLES / "kvcache.jsonl",
    lists_blocks=True,
)
