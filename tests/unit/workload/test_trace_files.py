"""Claims about reading rows: by column names, as a stream, every bad one named by file and line."""

import gzip
import io
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.workload.traces import azure, bailian, burstgpt, mooncake
from kvspill.workload.traces import files as trace_files
from kvspill.workload.traces.files import RowLog
from kvspill.workload.traces.replay import TraceWorkload, row_source

MOONCAKE_ROW = b'{"timestamp": 1000, "input_length": 700, "output_length": 5, "hash_ids": [7, 8]}\n'


def write(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(reader: Any, path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        list(reader(path, "--trace", RowLog()))
    return str(caught.value).replace(f"{path.parent}/", "")


def test_columns_are_found_by_name_whatever_their_order_case_and_number(tmp_path: Path) -> None:
    old = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,472,18,490,API log\n"
    new = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5.0,abc,3,m,472,18,490,Conversation log\n"
    )
    odd = "\ufeffresponse tokens, REQUEST TOKENS ,timestamp\r\n18,472,5\r\n"
    rows = [
        next(burstgpt.rows(write(tmp_path, f"{number}.csv", text), "--trace", RowLog()))
        for number, text in enumerate((old, new, odd))
    ]
    assert [row.at_ns for row in rows] == [5_000_000_000] * 3
    assert [(row.context_tokens, row.generate_tokens) for row in rows] == [(472, 18)] * 3
    assert [row.continues for row in rows] == [None, "abc", None]


def test_wall_clock_times_keep_every_digit_and_pass_midnight(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 23:59:59.6805900,374,44\n2023-11-17 00:00:00.0000001,1,1\n"
        "2024-05-12 00:00:00.003948+00:00,5,6\n2024-05-12T00:00:01Z,7,8\n"
    )
    times = [row.at_ns for row in azure.rows(write(tmp_path, "a.csv", text), "--trace", RowLog())]
    assert times[1] - times[0] == 319_410_100
    assert times[3] - times[2] == 996_052_000


BAD_ROWS = [
    (mooncake, '{"timestamp": 1, "input_length": 5', "broken JSON (Expecting ',' delimiter at column 35)"),
    (mooncake, "[1]", "holds a list, not an object with keys"),
    (mooncake, '{"timestamp": 1, "input_length": 5}', "output_length is missing"),
    (
        mooncake,
        '{"timestamp": 1, "input_length": -5, "output_length": 1}',
        "input_length -5 is not within 0 to 10,000,000",
    ),
    (
        mooncake,
        '{"timestamp": NaN, "input_length": 5, "output_length": 1}',
        "timestamp 'nan' is not a number",
    ),
    (
        mooncake,
        '{"timestamp": 1, "input_length": 1.5, "output_length": 1}',
        "input_length 1.5 is not a whole number",
    ),
    (
        mooncake,
        '{"timestamp": true, "input_length": 5, "output_length": 1}',
        "timestamp 'True' is not a number",
    ),
    (
        mooncake,
        '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [[1]]}',
        "hash_ids is not a list of block ids",
    ),
    (
        mooncake,
        '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": ["\\ud800"]}',
        "hash_ids is not a list of block ids",
    ),
    (
        mooncake,
        '{"timestamp": 1, "input_length": 1' + "0" * 5000 + ', "output_length": 1}',
        "broken JSON (a number is too long)",
    ),
    *(
        (
            mooncake,
            f'{{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": {ids}}}',
            f"hash_ids lists block 1 again in place {place}, but an id stands for a block and all before it",
        )
        for ids, place in (("[1, 2, 1]", 3), ("[1, 1, 1]", 2), ('[1, 2, 3, "1"]', 4))
    ),
    (
        bailian,
        '{"chat_id": {}, "timestamp": 1, "input_length": 5, "output_length": 1}',
        "chat_id '{}' is not the id of a chat",
    ),
]


@pytest.mark.parametrize(("reader", "row", "reason"), BAD_ROWS)
def test_a_bad_row_of_json_is_named_by_file_and_line(
    tmp_path: Path, reader: Any, row: str, reason: str
) -> None:
    good = '{"timestamp": 0, "input_length": 5, "output_length": 1}'
    path = write(tmp_path, "t.jsonl", f"{good}\n\n{row}\n{good}\n")
    assert refused(reader.rows, path) == f"t.jsonl:3: {reason}; correct that row or give --skip-bad-rows"


def test_equal_content_later_in_a_row_is_another_block_where_ids_are_of_contents(tmp_path: Path) -> None:
    """The KV of a block depends on all before it, and such a recording hashes each block alone."""
    listed = '[1, 2, 1, 1, "1@2"]'
    row = f'{{"timestamp": 1, "input_length": 80, "output_length": 1, "hash_ids": {listed}}}\n'
    (found,) = bailian.rows(write(tmp_path, "t.jsonl", row), "--trace", RowLog())
    assert found.blocks == ("1", "2", "1@2", "1@3", "1@2@2")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("yesterday,5,6", "TIMESTAMP 'yesterday' is not a time like 2023-11-16 18:15:46.6805900"),
        ("2023-11-16 18:15:46.6,5", "has 2 fields, not the 3 that the first line names"),
        ("2023-11-16 18:15:46.6,many,6", "ContextTokens 'many' is not a number"),
        ("2023-13-16 18:15:46.6,5,6", "TIMESTAMP '2023-13-16 18:15:46.6' is not a time like"),
        *(
            (f"2023-11-16 {clock},5,6", f"TIMESTAMP '2023-11-16 {clock}' is not a time like")
            for clock in ("24:00:00", "-1:15:46", "18:60:00", "18:15:61", "1_8:15:46", "18:15:46.-5", "18:15")
        ),
    ],
)
def test_a_bad_row_of_csv_is_named_by_file_and_line(tmp_path: Path, row: str, reason: str) -> None:
    path = write(
        tmp_path, "t.csv", f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,5,6\n{row}\n"
    )
    assert refused(azure.rows, path).startswith(f"t.csv:3: {reason}")


def test_skipped_rows_are_counted_and_the_first_are_kept_as_examples(tmp_path: Path) -> None:
    path = write(tmp_path, "t.jsonl", MOONCAKE_ROW + b"x\n" * 5 + MOONCAKE_ROW)
    log = RowLog(skip=True)
    assert len(list(mooncake.rows(path, "--trace", log))) == 2
    assert (log.skipped, len(log.examples)) == (5, 3)
    assert log.examples[0].endswith("t.jsonl:2: broken JSON (Expecting value at column 1)")


def test_rows_without_tokens_are_empty_and_not_bad(tmp_path: Path) -> None:
    text = "Timestamp,Request tokens,Response tokens\n1,0,0\n2,5,0\n"
    log = RowLog()
    rows = list(burstgpt.rows(write(tmp_path, "t.csv", text), "--trace", log))
    assert [(row.context_tokens, row.generate_tokens) for row in rows] == [(5, 0)]
    assert (log.empty, log.skipped) == (1, 0)


def test_packed_files_are_unpacked_and_truncated_ones_refused(tmp_path: Path) -> None:
    packed = gzip.compress(MOONCAKE_ROW * 1000)
    path = write(tmp_path, "t.jsonl.gz", packed)
    assert len(list(mooncake.rows(path, "--trace", RowLog()))) == 1000
    path.write_bytes(packed[:-20])
    assert "the compressed file ends or breaks in the middle" in refused(mooncake.rows, path)
    path.write_bytes(packed[:40] + bytes(20) + packed[60:])
    assert "the compressed file ends or breaks in the middle" in refused(mooncake.rows, path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "a,b\n1,2\n")
    assert refused(azure.rows, path) == (
        "t.csv:1: column 'TIMESTAMP' is missing; its first line must name the columns "
        "TIMESTAMP,ContextTokens,GeneratedTokens"
    )


def test_a_file_without_line_breaks_is_refused_before_it_takes_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_files, "ROW_BYTES_MAX", 1000)
    path = write(tmp_path, "t.jsonl", b"[" + b"1," * 5000)
    assert "the line is longer than" in refused(mooncake.rows, path)


def test_a_line_that_is_too_long_is_skipped_like_any_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = b'{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n'
    path = write(tmp_path, "t.jsonl", row + b"[" + b"1," * 5000 + b"]\n" + row)
    monkeypatch.setattr(trace_files, "ROW_BYTES_MAX", 1000)
    log = RowLog(skip=True)
    assert len(list(mooncake.rows(path, "--trace", log))) == 2
    assert log.skipped == 1
    assert log.examples[0].startswith(f"{path}:2: the line is longer than")


def test_a_column_named_twice_and_a_number_with_an_underscore_are_refused(tmp_path: Path) -> None:
    head = "TIMESTAMP,ContextTokens,GeneratedTokens"
    twice = write(tmp_path, "t.csv", f"{head},ContextTokens\n")
    assert "'ContextTokens' is named twice" in refused(azure.rows, twice)
    odd = write(tmp_path, "o.csv", f"{head}\n2023-11-16 18:15:46,3_74,5\n")
    assert "ContextTokens '3_74' is not a number" in refused(azure.rows, odd)


class Endless(io.RawIOBase):
    """A file without end: only what is read of it ever exists."""

    def __init__(self, row: bytes) -> None:
        self._row = row
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        copies = max(1, len(buffer) // len(self._row))
        text = (self._row * copies)[: len(buffer)]
        buffer[: len(text)] = text
        self.bytes_read += len(text)
        return len(text)


def test_a_trace_without_end_starts_at_once_and_stays_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A row as long as the buffer, so that reads begin and end with whole rows.
    row = MOONCAKE_ROW.rstrip(b"\n").ljust(255) + b"\n"
    endless = Endless(row)
    monkeypatch.setattr(
        trace_files, "open_bytes", lambda _path, _flag: io.BufferedReader(endless, buffer_size=256 * 256)
    )
    path = tmp_path / "t.jsonl"
    config = Config(trace=f"mooncake:{path}")
    workload = TraceWorkload(config, row_source(mooncake.rows, path, "--trace", True), "mooncake", path)
    assert endless.bytes_read < 1 << 20
    session = workload.session(0)
    for _ in islice(session, 2_000):
        pass
    tracemalloc.start()
    count = sum(1 for _ in islice(session, 20_000))
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 4 << 20


@pytest.mark.parametrize("flag", ["--trace", "--dataset-path"])
@pytest.mark.parametrize("kept_bytes", [0, 300, 2000])
def test_a_packed_file_that_breaks_off_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, kept_bytes: int
) -> None:
    packed = gzip.compress(MOONCAKE_ROW * 1000, compresslevel=0)
    path = write(tmp_path, "t.json.gz", packed[:kept_bytes] + bytes(40))
    name = f"weka:{path}" if flag == "--trace" else str(path)
    assert main(["simulate", flag, name, "--output", str(tmp_path / "r.json"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "t.json.gz" in error


@pytest.mark.parametrize("frames", [1, 3])
def test_a_file_packed_with_zstd_is_read_as_it_is(tmp_path: Path, frames: int) -> None:
    packed = b"".join(zstandard.compress(MOONCAKE_ROW * 1000) for _ in range(frames))
    path = write(tmp_path, "t.jsonl.zst", packed)
    assert sum(1 for _ in trace_files.lines(path, "--trace", RowLog())) == 1000 * frames


@pytest.mark.parametrize("cut", ["end", "middle", "garbage"])
def test_a_broken_zstd_file_is_named(tmp_path: Path, cut: str) -> None:
    packed = zstandard.compress(b"".join(MOONCAKE_ROW[:-1] + b" " * (n % 97) + b"\n" for n in range(5000)))
    data = {"end": packed[:-5], "middle": packed[: len(packed) // 2], "garbage": b"no zstd at all" * 9}[cut]
    path = write(tmp_path, "t.jsonl.zst", data)
    with pytest.raises(UsageError, match=r"t\.jsonl\.zst:\d+: the compressed file ends or breaks"):
        for _ in trace_files.lines(path, "--trace", RowLog()):
            pass
