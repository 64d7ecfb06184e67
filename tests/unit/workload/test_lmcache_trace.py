"""LMCache's own recordings: lookups as JSON lines, and storage traces frame by frame."""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.run.settle import settle_io_size
from kvspill.workload.traces.files import RowLog
from kvspill.workload.traces.lmcache import rows

msgpack = pytest.importorskip("msgpack")
HEADER = {"type": "header", "magic": b"LMCT", "format_version": 1, "level": "storage"}
MANAGER = "lmcache.v1.distributed.storage_manager.StorageManager."


def lookup(hashes: list[str], tokens: int = 700, at: float = 1794767580.5) -> str:
    return json.dumps({"timestamp": at, "chunk_size": 256, "seq_len": tokens, "chunk_hashes": hashes})


def key(number: int) -> dict[str, Any]:
    return {"__t__": "ObjectKey", "v": {"chunk_hash": bytes([number]) * 4, "model_name": "m", "kv_rank": 0}}


def call(name: str, keys: list[dict[str, Any]], at: float = 0.0) -> dict[str, Any]:
    group = {"__t__": "GroupedObjectKeys", "v": {"keys": keys, "object_group_id": 0}}
    spec = {"__t__": "PrefetchTaskSpec", "v": {"key_groups": [group], "num_kv_readers": 1}}
    return {"type": "record", "t_mono": at, "t_wall": 0.0, "qualname": MANAGER + name, "args": {"spec": spec}}


def trace(path: Path, *records: dict[str, Any], header: dict[str, Any] = HEADER) -> Path:
    frames = [msgpack.packb(record) for record in (header, *records)]
    path.write_bytes(b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))
    return path


def test_a_lookup_is_a_request_with_its_chunks(tmp_path: Path) -> None:
    path = tmp_path / "lookup_hashes.jsonl"
    path.write_text(f"{lookup(['0xa', '0xb'])}\n{lookup(['0xa'], 300, 1794767581.5)}\n")
    first, second = rows(path, "--trace", RowLog())
    assert (first.context_tokens, first.block_tokens, first.blocks) == (700, 256, ("0xa", "0xb"))
    assert second.at_ns - first.at_ns == 1_000_000_000
    assert first.generate_tokens == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (lookup(["0xa", "0xb", "0xc"], 100), "lists 3 chunks for seq_len 100"),
        (lookup(["0xa", "0xa"]), "again"),
        ('{"timestamp": 1, "chunk_size": 0, "seq_len": 1}', "must hold tokens"),
        ('{"timestamp": 1, "seq_len": 1}', "chunk_size is missing"),
    ],
)
def test_a_lookup_that_cannot_be_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UsageError, match=why):
        list(rows(path, "--trace", RowLog()))


def test_a_storage_trace_gives_the_chunks_that_requests_asked_for(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "run.lct",
        call("submit_prefetch_task", [key(1), key(2)], 0.5),
        call("reserve_write", [key(1), key(2)], 0.6),
        call("submit_prefetch_task", [key(1), key(2), key(2), key(3)], 1.5),
        call("submit_prefetch_task", [], 2.0),
    )
    log = RowLog()
    first, second = rows(path, "--trace", log, 128)
    assert first.blocks == ("01010101", "02020202")
    assert second.blocks[:2] == first.blocks
    assert (second.context_tokens, second.block_tokens) == (3 * 128, 128)
    assert (first.at_ns, second.at_ns) == (500_000_000, 1_500_000_000)
    assert log.empty == 1


def test_a_trace_of_another_format_or_cut_off_is_named(tmp_path: Path) -> None:
    other = trace(tmp_path / "other.lct", header={**HEADER, "format_version": 2})
    with pytest.raises(UsageError, match="no storage trace of LMCache in format 1"):
        list(rows(other, "--trace", RowLog()))
    (tmp_path / "text.lct").write_text("not at all")
    with pytest.raises(UsageError, match="no storage trace"):
        list(rows(tmp_path / "text.lct", "--trace", RowLog()))
    whole = trace(tmp_path / "cut.lct", *[call("submit_prefetch_task", [key(1)])] * 2)
    whole.write_bytes(whole.read_bytes()[:-5])
    with pytest.raises(UsageError, match=r"record 2: the trace breaks there \(it ends within a record\)"):
        list(rows(whole, "--trace", RowLog()))
    assert len(list(rows(whole, "--trace", RowLog(skip=True)))) == 1


def test_the_chunks_of_a_storage_trace_have_the_size_that_is_given(tmp_path: Path) -> None:
    path = trace(tmp_path / "run.lct", call("submit_prefetch_task", [key(1)]))
    config = Config(engine="lmcache", trace=f"lmcache:{path}", plugins={"lmcache": {"chunk_tokens": 512}})
    settled = settle_io_size(config)
    assert settled.io_size == settled.kv.block(512)


def test_a_record_is_no_longer_than_its_values_may_take_memory(tmp_path: Path) -> None:
    """Twenty million empty lists, a file of 19 MB, took 1.5 GB."""
    path = trace(tmp_path / "bomb.lct", call("submit_prefetch_task", [key(1)]))
    frame = b"\xdd" + struct.pack(">I", 9_000_000) + b"\x90" * 9_000_000
    with path.open("ab") as file:
        file.write(struct.pack(">I", len(frame)) + frame)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"record 2: .* \(a record of 9,000,005 bytes\)"):
            list(rows(path, "--trace", RowLog()))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
