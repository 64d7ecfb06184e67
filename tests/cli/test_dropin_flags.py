"""Flags of today's kv-cache.py: each is accepted and does what it says, and its mistakes are one line."""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kvspill.cli import simulate
from kvspill.cli.main import main
from kvspill.cli.options import config_parser, parse_config
from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import GIB

QUICK = "--model tiny-1b --num-users 4 --generation-mode none --max-requests 40"


def parse(line: str) -> Config:
    return parse_config(config_parser("kv-cache.py", "", ""), line.split(), {})


def result_of(tmp_path: Path, command: str, line: str) -> Any:
    output = tmp_path / "result.json"
    assert main([command, *f"{QUICK} {line}".split(), "--output", str(output)]) == 0
    return json.loads(output.read_text())


def codes(result: Any) -> set[str]:
    return {item["code"] for item in result["warnings"]}


def test_the_gpu_tier_is_that_of_all_gpus() -> None:
    config = parse("--num-gpus 8 --tensor-parallel 8 --gpu-mem-gb 141 --model llama3.1-70b-instruct")
    assert config.gpu_bytes == 8 * 141 * GIB
    assert config.largest_entry_bytes * 8 == parse("--model llama3.1-70b-instruct").largest_entry_bytes
    assert parse("--gpu-mem-gb 141").gpu_bytes == 141 * GIB
    with pytest.raises(UsageError) as caught:
        parse("--num-gpus 4 --tensor-parallel 8")
    assert str(caught.value) == "--tensor-parallel 8: there are only --num-gpus 4; give at least --num-gpus 8"


def test_gpus_without_a_tier_are_warned_of(tmp_path: Path) -> None:
    assert "unused_setting" in codes(result_of(tmp_path, "simulate", "--num-gpus 8"))


@pytest.mark.parametrize("flags", ["--gpu-device 5", "--gpu-device 5 --gpu-mem-gb 2", "--load-to gpu"])
def test_a_setting_of_a_gpu_that_is_not_used_is_warned_of_with_what_helps(tmp_path: Path, flags: str) -> None:
    result = result_of(tmp_path, "simulate", flags)
    (item,) = [item for item in result["warnings"] if item["code"] == "unused_setting"]
    assert "--gpu-tier real" not in item["remedy"]
    assert "use kvspill run where a GPU can be used" in item["remedy"]


def test_two_modelled_gpus_are_a_larger_tier_and_no_setting_in_vain(tmp_path: Path) -> None:
    result = result_of(tmp_path, "simulate", "--gpu-device 0,1 --gpu-mem-gb 2")
    assert "unused_setting" not in codes(result)


def test_a_simulation_does_not_pass_for_a_run_on_a_real_gpu() -> None:
    with pytest.raises(
        UsageError, match=r"^--gpu-tier real: a simulation uses no GPU; give --gpu-tier modelled"
    ):
        simulate.main(["--gpu-tier", "real"])


@pytest.mark.parametrize(
    ("level", "quiet", "debug"),
    [("INFO", False, False), ("debug", False, True), ("WARNING", True, False), ("CRITICAL", True, False)],
)
def test_the_log_level_means_quiet_or_debug(level: str, quiet: bool, debug: bool) -> None:
    config = parse(f"--log-level {level}")
    assert (config.quiet, config.debug) == (quiet, debug)


def test_the_log_level_wins_over_the_shipped_file_and_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = Path(__file__).parents[2] / "config.yaml"
    assert parse(f"--config {shipped} --log-level ERROR").quiet
    assert main(["run", "--log-level", "LOUD"]) == 2
    assert "--log-level LOUD" in capsys.readouterr().err
    assert main(["run", "--log-level", "DEBUG", "--cache-dir", "/nowhere/at/all"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_sizes_of_a_preconditioning_that_is_not_asked_for_are_warned_of(tmp_path: Path) -> None:
    line = "--precondition-size-gb 2 --precondition-threads 4"
    assert "unused_setting" in codes(result_of(tmp_path, "simulate", line))
    assert "unused_setting" not in codes(result_of(tmp_path, "simulate", f"{line} --precondition"))
    assert parse("--precondition-size-gb 0 --precondition-threads 0").precondition_size_gb is None


def test_a_burst_trace_without_a_path_is_our_sample_and_the_result_says_so(tmp_path: Path) -> None:
    result = result_of(tmp_path, "simulate", "--use-burst-trace")
    assert result["workload"]["kind"] == "burstgpt"
    assert "sample_recording" in codes(result)
    named = result_of(tmp_path, "simulate", "--trace burstgpt:sample")
    assert named["digest"] == result["digest"]
    assert "sample_recording" not in codes(named)


def rows_of(path: Path) -> list[dict[str, str]]:
    raw = path.read_bytes()
    if path.suffix == ".zst":
        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read()
    return list(csv.DictReader(io.StringIO(raw.decode())))


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.zst"])
def test_the_io_trace_has_every_operation_and_no_byte_is_moved(tmp_path: Path, name: str) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    line = f"--io-trace-log {tmp_path / name} --cpu-mem-gb 0.1 --storage-capacity-gb 0.4 --cache-dir {cache}"
    result = result_of(tmp_path, "run", line)
    assert result["simulated"]
    assert not list(cache.iterdir())
    rows = rows_of(tmp_path / name)
    assert list(rows[0]) == ["Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase"]
    counts = Counter((row["Operation"], row["Tier"]) for row in rows)
    stats = result["summary"]["cache_stats"]
    for tier, label in (("cpu", "Tier-1"), ("storage", "Tier-2")):
        for verb in ("read", "write"):
            assert counts[verb.capitalize(), label] == stats[f"{tier}_{verb}_ops"] > 0
    assert counts["Delete", "Tier-2"] > 0
    assert {row["Phase"] for row in rows} == {"Prefill", "Decode", "Evict"}
    read = sum(int(row["Object_Size_Bytes"]) for row in rows if row["Operation"] == "Read")
    assert read == stats["total_read_bytes"]
    times = [float(row["Timestamp"]) for row in rows]
    assert times == sorted(times)
    assert times[0] > 1.7e9, "seconds of the epoch"


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--output", "r.json"),
        ("--io-trace-log", "t.csv"),
        ("--log-ops", "o.parquet"),
        ("--xlsx-output", "x.csv"),
    ],
)
def test_every_output_makes_its_directory_and_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, name: str
) -> None:
    file = tmp_path / "new" / name
    output = [] if flag == "--output" else ["--output", str(tmp_path / "result.json")]
    assert main(["simulate", *QUICK.split(), *output, flag, str(file)]) == 0
    assert file.exists()
    said, told = capsys.readouterr()
    assert f"\n  {file}\n" in said
    assert ("\nAlso written:\n" in said) == bool(output)
    assert f"the directory {file.parent} does not exist and will be made\n" in told
    assert main(["simulate", *QUICK.split(), *output, flag, str(file)]) == 0
    assert "will be made" not in capsys.readouterr().err


def test_a_setting_of_the_environment_that_a_disk_cannot_meet_is_named_by_its_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSPILL_STORAGE_CAPACITY_GB", "1000000")
    assert main(["run", *QUICK.split(), "--cache-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kvspill: error: KVSPILL_STORAGE_CAPACITY_GB=1e+06: only ")
    assert "; give at most KVSPILL_STORAGE_CAPACITY_GB=" in said
    assert said.endswith(" or another --cache-dir\n")


def test_a_trace_that_nothing_can_take_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", "--io-trace-log", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"kvspill: error: --io-trace-log {tmp_path}: ")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(["run", "--io-trace-log", str(tmp_path / "a.zst"), "--storage-backend", "null"]) == 2
    assert "needs zstandard, not installed here; pip install 'kvspill[log]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


ROW = {"cache_hit": True, "read_bytes": 900, "write_bytes": 100, "context_tokens": 10, "generation_tokens": 5}


def test_the_validation_table_holds_the_run_against_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([ROW, {**ROW, "cache_hit": False, "context_tokens": 30}]))
    found = result_of(tmp_path, "simulate", f"--validation-trace {path}")["validation"]
    assert found["trace_stats"] == {
        "total_requests": 2,
        "cache_hit_rate": 0.5,
        "read_write_ratio": 9.0,
        "context_tokens_mean": 20.0,
        "generation_tokens_mean": 5.0,
    }
    hits = found["comparison"]["cache_hit_rate"]
    assert hits["error_pct"] == pytest.approx(abs(hits["benchmark"] - 0.5) / 0.5 * 100)
    assert hits["within_5pct"] is False
    errors = [row["error_pct"] for row in found["comparison"].values()]
    assert found["avg_error_pct"] == pytest.approx(sum(errors) / 4)
    assert found["passed"] is False
    said = capsys.readouterr().out
    assert "### VALIDATION ###" in said
    assert "Validation: FAILED" in said


def test_a_service_like_the_run_passes_and_fields_that_rows_lack_are_left_out(tmp_path: Path) -> None:
    mean = result_of(tmp_path, "simulate", "")["metrics"]["mean_context_tokens"]["value"]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"context_tokens": mean}]))
    found = result_of(tmp_path, "simulate", f"--validation-trace {path}")["validation"]
    assert (found["passed"], found["avg_error_pct"]) == (True, pytest.approx(0))
    assert found["comparison"]["cache_hit_rate"]["error_pct"] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "holds no list of rows; give one JSON list with a row per request"),
        (
            "{",
            "is no JSON (Expecting property name enclosed in double quotes: line 1 column 2",
        ),
        ("[1]", "row 1 is no object; give fields such as cache_hit"),
        (
            '[{"read_bytes": 1}, {}]',
            "row 2: read_bytes is 'None'; give a number from 0 to 1e+18 in every row",
        ),
        ('[{"cache_hit": "yes"}]', "row 1: cache_hit is 'yes'; give a number from 0 to 1e+18 in every row"),
    ],
)
def test_rows_that_cannot_be_compared_with_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    assert main(["simulate", "--validation-trace", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"kvspill: error: --validation-trace {path}: {said}")
    assert err.count("\n") == 1
