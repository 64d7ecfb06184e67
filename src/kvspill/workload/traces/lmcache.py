"""What LMCache records of itself: its log of lookups (JSON lines) and its storage traces (.lct)."""

import struct
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError
from kvspill.plugins import LISTS_BLOCKS, Option, Plugin
from kvspill.records import NS_PER_SEC
from kvspill.workload.base import Workload
from kvspill.workload.traces.files import RowError, RowLog, hash_ids_of, json_rows, time_ns_of, tokens_of
from kvspill.workload.traces.format import SAMPLES, TraceContext
from kvspill.workload.traces.packed import open_bytes, unreadable
from kvspill.workload.traces.replay import Row, TraceWorkload, row_source

CHUNK_TOKENS = 256
_STORAGE_TRACE = ".lct"
_MAGIC, _FORMAT = b"LMCT", 1
_LENGTH = struct.Struct(">I")
_LOOKUP = ".submit_prefetch_task"
"""The call by which a request asks for its chunks."""
_TAG, _VALUE, _KEY = "__t__", "v", "ObjectKey"
_DEPTH_MAX = 20
_FRAME_BYTES_MAX = 8 << 20
"""Each byte of a frame may be a value that takes a hundred of memory; keys of ten million tokens fit."""


def rows(path: Path, flag: str, log: RowLog, chunk_tokens: int = CHUNK_TOKENS) -> Iterator[Row]:
    """The lookups of the file in its own order; neither kind of file knows what was generated."""
    if path.suffix == _STORAGE_TRACE:
        return _storage_rows(path, flag, log, chunk_tokens)
    return json_rows(path, flag, log, _lookup)


def _lookup(record: Mapping[str, Any]) -> Row | None:
    context_tokens = tokens_of(record, "seq_len")
    chunk_tokens = tokens_of(record, "chunk_size")
    if chunk_tokens == 0:
        raise RowError("chunk_size 0: chunks must hold tokens")
    blocks = hash_ids_of(record, "chunk_hashes")
    if len(blocks) * chunk_tokens > context_tokens + chunk_tokens:
        raise RowError(f"chunk_hashes lists {len(blocks)} chunks for seq_len {context_tokens}")
    at_ns = time_ns_of(record, "timestamp", NS_PER_SEC)
    row = Row(at_ns, context_tokens, 0, blocks=blocks, block_tokens=chunk_tokens)
    return row if context_tokens else None


def _storage_rows(path: Path, flag: str, log: RowLog, chunk_tokens: int) -> Iterator[Row]:
    for number, record in enumerate(_frames(path, flag, log), start=1):
        if not str(record.get("qualname", "")).endswith(_LOOKUP):
            continue
        try:
            blocks = tuple(dict.fromkeys(_hashes(record.get("args"))))
            at_ns = time_ns_of(record, "t_mono", NS_PER_SEC)
        except RowError as error:
            log.bad(path, f"record {number}", error)
            continue
        log.line = number
        if blocks:
            yield Row(at_ns, len(blocks) * chunk_tokens, 0, blocks=blocks, block_tokens=chunk_tokens)
        else:
            log.empty += 1


def _frames(path: Path, flag: str, log: RowLog) -> Iterator[Mapping[str, Any]]:
    """The records behind the header; each frame has its length before it."""
    try:
        import msgpack
    except ImportError:
        raise UsageError(
            f"{flag} {path}: needs msgpack, not installed here; pip install 'kvspill[lct]'"
        ) from None
    with open_bytes(path, flag) as file:

        def read(nbytes: int) -> bytes:
            try:
                return file.read(nbytes)
            except OSError as error:
                unreadable(path, flag, error)

        for number, head in enumerate(iter(partial(read, _LENGTH.size), b"")):
            try:
                nbytes = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 1
                if nbytes > _FRAME_BYTES_MAX:
                    raise ValueError(f"a record of {nbytes:,} bytes")
                frame = read(nbytes)
                if len(frame) != nbytes:
                    raise ValueError("it ends within a record")
                record = msgpack.unpackb(frame, strict_map_key=False)
                if not isinstance(record, dict):
                    raise ValueError("it holds no map")
            except Exception as error:  # whatever the library makes of broken bytes
                if number:
                    log.bad(path, f"record {number}", f"the trace breaks there ({error})")
                    return
                record = {}
            if number:
                yield record
            elif (record.get("magic"), record.get("format_version")) != (_MAGIC, _FORMAT):
                raise UsageError(
                    f"{flag} {path}: no storage trace of LMCache in format {_FORMAT}; name a file that "
                    "`lmcache trace info` reads"
                )


def _hashes(value: Any, depth: int = 0) -> Iterator[str]:
    """The hashes of all chunks that the arguments of a call name, in order."""
    if depth > _DEPTH_MAX:
        raise RowError("its arguments are nested too deeply")
    if isinstance(value, list):
        for inner in value:
            yield from _hashes(inner, depth + 1)
    elif isinstance(value, dict) and value.get(_TAG) == _KEY:
        named = value.get(_VALUE)
        found = named.get("chunk_hash") if isinstance(named, dict) else None
        if not isinstance(found, bytes | int):
            raise RowError("a key has no chunk_hash")
        yield found.hex() if isinstance(found, bytes) else str(found)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _hashes(inner, depth + 1)


def make(context: TraceContext) -> Workload:
    """The lookups as a workload."""
    reader = partial(rows, chunk_tokens=context.options["chunk_tokens"])
    source = row_source(reader, context.path, context.flag, ordered=not context.closed)
    return TraceWorkload(context.config, source, "lmcache", context.path)


PLUGIN = Plugin(
    "lmcache",
    "LMCache: its log of lookups (--lookup-hash-log-dir), or a storage trace (.lct)",
    make,
    options=(
        Option(
            "chunk_tokens",
            "tokens per chunk of a storage trace, which does not say",
            CHUNK_TOKENS,
            int,
            minimum=1,
            maximum=1_000_000,
        ),
    ),
    sample=SAMPLES / "lmcache.jsonl",
    can=frozenset({LISTS_BLOCKS}),
)
