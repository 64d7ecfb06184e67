"""What a run did, exported: the replay and the trace ask for the same bytes, blocks and times."""

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.report.exports import traces
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial

pq = pytest.importorskip("pyarrow.parquet")
LOAD: dict[str, Any] = {
    "model": "tiny-1b",
    "num_users": 6,
    "max_requests": 60,
    "cpu_mem_gb": 0,
    "generation_mode": "none",
    "io_model": "prefix",
    "block_tokens": 128,
}


def simulated(**settings: Any) -> dict[str, Any]:
    config = Config(**{**LOAD, **settings})
    plan = Plan(config, simulated=True, storage_bytes=1 << 40)
    document: dict[str, Any] = run_trial(plan, Progress(quiet=True)).document()
    return document


def storage_bytes(result: dict[str, Any]) -> tuple[int, int]:
    stats = result["summary"]["cache_stats"]
    return stats["total_read_bytes"], stats["total_write_bytes"]


@pytest.mark.parametrize("trace", [None, "bailian:sample", "mooncake:sample"])
def test_a_run_exported_as_a_trace_asks_storage_for_the_same(tmp_path: Path, trace: str | None) -> None:
    log, out = tmp_path / "ops.parquet", tmp_path / "load.jsonl"
    first = simulated(log_ops=str(log), trace=trace)
    assert main(["export", "trace", str(log), "-o", str(out), "--block-tokens", "128"]) == 0
    again = simulated(trace=f"kvcache:{out}")
    assert again["requests_completed"] == first["requests_completed"] == 60
    assert storage_bytes(again) == storage_bytes(first)
    assert storage_bytes(again)[0] > 0
    times = [json.loads(line)["timestamp"] for line in out.read_text().splitlines()]
    assert times == sorted(times)
    logged = pq.read_table(tmp_path / "ops-requests.parquet")["intended_ns"].to_pylist()
    assert times[-1] * 1e6 == pytest.approx(max(logged) - min(logged))


def test_a_replay_has_every_byte_of_the_log_and_no_two_objects_in_one_place(tmp_path: Path) -> None:
    log, job = tmp_path / "ops.parquet", tmp_path / "job.fio"
    result = simulated(log_ops=str(log))
    assert main(["export", "fio", str(log), "-o", str(job), "--directory", str(tmp_path)]) == 0
    moved = {"read": 0, "write": 0}
    written: set[tuple[int, int]] = set()
    first, *lines = (tmp_path / "job.fio.iolog").read_text().splitlines()
    assert first == "fio version 3 iolog"
    for _us, _file, verb, offset, nbytes in (line.split() for line in lines if line.count(" ") == 4):
        moved[verb] += int(nbytes)
        if verb == "write":
            place = (int(offset), int(nbytes))
            assert place not in written
            written.add(place)
    assert (moved["read"], moved["write"]) == storage_bytes(result)
    ends = sorted((offset, offset + nbytes) for offset, nbytes in written)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert f"size={max(end for _, end in ends)}" in job.read_text()


def test_a_replay_keeps_the_times_of_the_log_in_fios_unit(tmp_path: Path) -> None:
    log, job = tmp_path / "ops.parquet", tmp_path / "job.fio"
    simulated(log_ops=str(log))
    assert main(["export", "fio", str(log), "-o", str(job), "--directory", str(tmp_path)]) == 0
    moves = [row for row in pq.read_table(log).to_pylist() if row["verb"] != "delete"]
    starts_us = sorted(row["started_ns"] // 1000 for row in moves)
    lines = [line.split() for line in (tmp_path / "job.fio.iolog").read_text().splitlines()]
    at_us = [int(words[0]) for words in lines if len(words) == 5 and words[0].isdigit()]
    assert len(at_us) == len(starts_us)
    assert [at - at_us[0] for at in at_us] == pytest.approx([at - starts_us[0] for at in starts_us], abs=1)
    # fio waits for no time that follows a time of 0.
    assert at_us[0] > 0


@pytest.mark.parametrize(
    ("kind", "flags"),
    [("trace", ["--no-stall"]), ("trace", ["--directory", "."]), ("fio", ["--block-tokens", "256"])],
)
def test_a_flag_of_the_other_kind_is_refused(
    tmp_path: Path, kind: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", kind, "any", "-o", str(tmp_path / "out"), *flags]) == 2
    other = "fio" if kind == "trace" else "trace"
    assert f"{flags[0]}: belongs to `kvspill export {other}`; leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["fio", "trace"])
def test_what_is_no_log_is_refused_in_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    for source, word in ((broken, "no log of --log-ops"), (tmp_path / "none", "cannot be read")):
        assert main(["export", kind, str(source), "-o", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert word in said
        assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_log_without_blocks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "ops.parquet"
    simulated(log_ops=str(log))
    requests = tmp_path / "ops-requests.parquet"
    pq.write_table(pq.read_table(requests).drop_columns(["blocks"]), requests)
    assert main(["export", "trace", str(log), "-o", str(tmp_path / "out")]) == 2
    assert "has no column blocks" in capsys.readouterr().err


def test_a_simulated_result_has_no_calls_to_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "result.json"
    result.write_text(json.dumps(simulated()))
    assert main(["export", "fio", str(result), "-o", str(tmp_path / "job.fio")]) == 2
    assert "no system calls on storage" in capsys.readouterr().err


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both tables of a small run."""
    where = tmp_path_factory.mktemp("logs")
    simulated(log_ops=str(where / "ops.parquet"), max_requests=2)
    names = {"fio": "ops.parquet", "trace": "ops-requests.parquet"}
    return {kind: pq.read_table(where / name) for kind, name in names.items()}


def changed(table: Any, name: str, value: Any, kind: str | None = None) -> Any:
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array([value] * table.num_rows, kind)
    return table.set_column(table.schema.get_field_index(name), name, column)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *(
            ("fio", name, value)
            for name in ("started_ns", "device_ns")
            for value in (None, "x", float("nan"))
        ),
        *(("fio", "stored_bytes", value) for value in (None, -5, 1 << 62, [1])),
        *(("fio", "pieces", value) for value in (None, -5, (1 << 31) - 1)),
        *(("fio", "verb", value) for value in ("x\x1b[31m\n../../etc", 5)),
        ("trace", "context_tokens", 1 << 62),
        ("trace", "intended_ns", float("nan")),
    ],
)
def test_a_row_that_no_run_writes_is_refused_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    logs: dict[str, Any],
    kind: str,
    name: str,
    value: Any,
) -> None:
    log, out = tmp_path / "ops.parquet", tmp_path / "out"
    table = logs[kind]
    same = str(table.schema.field(name).type) if isinstance(value, int) and name != "verb" else None
    pq.write_table(changed(table, name, value, same), log)
    assert main(["export", kind, str(log), "-o", str(out)]) == 2
    err = capsys.readouterr().err
    assert name in err
    assert "\x1b" not in err
    assert len(err.splitlines()) == 1
    assert not out.exists()


def test_a_pipe_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was opened, which waits for a writer."""
    os.mkfifo(tmp_path / "pipe")
    assert main(["export", "fio", str(tmp_path / "pipe"), "-o", str(tmp_path / "out")]) == 2
    assert "cannot be read (neither a file nor a directory)" in capsys.readouterr().err


def of_equal_texts(table: Any, name: str, text: str, each: int) -> Any:
    """The table's first rows with a text, or so many of them, in each; the file has it once."""
    pa = pytest.importorskip("pyarrow")
    table = table.slice(0, 2)
    codes = pa.Array.from_buffers(pa.int32(), 2 * each, [None, pa.py_buffer(bytes(8 * each))])
    column = pa.DictionaryArray.from_arrays(codes, pa.array([text]))
    if name == "blocks":
        column = pa.ListArray.from_arrays(pa.array([0, each, 2 * each], pa.int32()), column)
    return table.set_column(table.schema.get_field_index(name), name, column)


@pytest.mark.parametrize(
    ("kind", "name", "text", "each", "said"),
    [
        ("trace", "blocks", "b", 20_000_000, "has 40,000,000 blocks in a group of rows, more than the"),
        ("trace", "blocks", "b", 2_000_000, "has a row with 2,000,000 blocks, more than the 1,048,576"),
        ("trace", "blocks", "b" * 5_000_000, 40, "a row whose blocks takes 5,000,000 bytes, more than"),
        ("fio", "key", "k" * 5_000_000, 1, "a row whose key takes 5,000,000 bytes, more than the 4,096"),
    ],
)
def test_a_small_file_that_unfolds_to_a_large_one_is_refused(
    logs: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    name: str,
    text: str,
    each: int,
    said: str,
) -> None:
    log = tmp_path / "log.parquet"
    pq.write_table(of_equal_texts(logs[kind], name, text, each), log, compression="zstd", store_schema=False)
    assert log.stat().st_size < 30_000
    assert main(["export", kind, str(log), "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_more_blocks_than_a_trace_takes_are_refused(
    logs: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pa, table = pytest.importorskip("pyarrow"), logs["trace"]
    for name, value in (("context_tokens", 1 << 21), ("blocks", None)):
        place = table.schema.get_field_index(name)
        values = pa.array([value] * table.num_rows, table.schema.field(place).type)
        table = table.set_column(place, table.schema.field(place), values)
    log = tmp_path / "log.parquet"
    pq.write_table(table, log)
    words = ["export", "trace", str(log), "-o", str(tmp_path / "out"), "--block-tokens"]
    assert main([*words, "1"]) == 2
    assert (
        "has more than 1,048,576 blocks in a request of 1 tokens, which no trace takes"
        in capsys.readouterr().err
    )
    monkeypatch.setattr(traces, "NAMES_MAX", 1 << 17)
    assert main([*words, "16"]) == 2
    assert "has more than 131,072 blocks of 16 tokens, which no trace takes" in capsys.readouterr().err
    assert main([*words, "512"]) == 0
