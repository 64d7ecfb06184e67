"""The typed result: its published schema, older files, and the command that does the same again."""

import copy
import gzip
import json
import math
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.cli.options import config_parser, parse_config
from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import Verb
from kvspill.result.bottleneck import bottleneck
from kvspill.result.command import command_of
from kvspill.result.ranking import faults_text
from kvspill.result.reading import kv_cache_py_result, load_result, our_result
from kvspill.result.schema import Result, schema_text
from unit.measure.rows import op, request
from unit.report.compare.made import legacy
from unit.result import sample

ROOT = Path(__file__).parents[3]
NOT_THE_RUN = ("sources", "ignored_keys", "output", "xlsx_output", "log_ops", "quiet", "debug")


def settings(config: Config | dict[str, Any]) -> dict[str, Any]:
    values = config if isinstance(config, dict) else config.model_dump(mode="json")
    return {name: value for name, value in values.items() if name not in NOT_THE_RUN}


def replayed(command: str) -> Config:
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("kvspill", "simulate")
    return parse_config(config_parser("kvspill simulate", "", ""), words, environ={})


def faulty() -> Result:
    recorder = sample.filled_recorder()
    recorder.op(op(13, verb=Verb.READ, error="EIO"))
    recorder.request(request(14, failure="decode read: EIO"))
    return sample.built(recorder, sample.facts(failed=1))


def test_the_published_schema_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "result.schema.json").read_text()
    assert text == schema_text(), "run: python -m kvspill.result.schema > docs/result.schema.json"


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(sample.result()))
    assert load_result(path) == sample.built()


def test_keys_of_newer_files_are_kept() -> None:
    document = {**sample.result(), "later": {"x": 1}}
    document["window"]["later"] = 2
    read = our_result(document, Path("r.json"))
    assert read.document()["later"] == {"x": 1}
    assert read.document()["window"]["later"] == 2


def test_a_result_of_the_first_version_is_still_read() -> None:
    document = {**faulty().document(), "schema_version": 1}
    for name in ("faulty", "faults", "command", "in_flight_at_end"):
        del document[name]
    read = our_result(document, Path("r.json"))
    assert read.faulty
    assert read.faults == faulty().faults
    assert read.command is None


def test_a_file_that_the_first_version_wrote_is_read_shown_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is of `simulate --model tiny-1b --num-users 4 --max-requests 12 --seed 7 --cpu-mem-gb 0.05
    --storage-capacity-gb 1`, as that version left it but for the name of its output."""
    path = tmp_path / "first.json"
    path.write_bytes(gzip.decompress(Path(__file__).with_name("first_version.json.gz").read_bytes()))
    document = json.loads(path.read_text())
    assert document["schema_version"] == 1
    read = load_result(path)
    assert (read.simulated, read.faulty, read.command) == (True, False, None)
    assert read.digest == document["digest"]
    written = {name: entry["value"] for name, entry in document["metrics"].items()}
    assert written["storage_read_ops"] == 16
    assert {name: read.value(name) for name in written} == written
    assert main(["report", str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert "tiny-1b" in (tmp_path / "page.html").read_text()
    assert main(["compare", str(path), "--", str(path)]) == 0
    assert "5,331.93" in capsys.readouterr().out


def test_a_result_of_kv_cache_py_is_a_result_with_what_it_says() -> None:
    read = kv_cache_py_result(legacy(tokens=1000, io_seconds=10), Path("x.json"))
    assert read is not None
    assert read.value("total_tokens") == 1000
    assert read.config == {}
    assert kv_cache_py_result({"summary": {}}, Path("x.json")) is None
    assert kv_cache_py_result([], Path("x.json")) is None


@pytest.mark.parametrize("figure", [math.nan, math.inf, -5.0])
@pytest.mark.parametrize("block", ["summary", "cache_stats"])
def test_a_figure_that_no_run_has_is_refused_by_its_name(figure: float, block: str) -> None:
    document = copy.deepcopy(sample.result())
    summary = document["summary"]
    name = "requests_per_second" if block == "summary" else "storage_read_p95_ms"
    (summary if block == "summary" else summary["cache_stats"])[name] = figure
    with pytest.raises(UsageError, match=f"not a whole kvspill result .{name}: {figure:g}"):
        our_result(document, Path("r.json"))


def test_steps_of_no_length_are_refused() -> None:
    document = copy.deepcopy(sample.result())
    document["timeline"]["interval_seconds"] = 0
    with pytest.raises(UsageError, match="interval_seconds: Input should be greater than 0"):
        our_result(document, Path("r.json"))


@pytest.mark.parametrize("place", ["window", "honesty", "metrics", "tiers"])
def test_a_part_of_the_wrong_shape_is_refused_by_its_name(place: str) -> None:
    with pytest.raises(UsageError, match=f"not a whole kvspill result .{place}"):
        our_result({**sample.result(), place: "text"}, Path("r.json"))


def test_a_fault_makes_the_result_faulty_with_counts_by_kind() -> None:
    found = faulty()
    assert found.faulty
    assert [row.model_dump() for row in found.faults.operations] == [
        {"tier": "storage", "verb": "read", "kind": "EIO", "count": 1}
    ]
    assert (found.faults.failed_requests, found.faults.failed_request_share) == (1, 0.2)
    assert not sample.built().faulty


def test_stuck_io_is_a_fault() -> None:
    found = sample.built(run=sample.facts(stuck_ages_ns=(5_000_000_000,)))
    assert found.faulty
    assert found.faults.stuck_io.threads == 1


@pytest.mark.parametrize(
    ("place", "calls", "check"),
    [
        ("/mnt/x", "2 system calls", "Check the device and the kernel log; "),
        ("redis://host", "2 store requests", "Check the store, the network and its logs; "),
    ],
)
def test_what_hangs_is_named_by_where_the_storage_tier_lies(place: str, calls: str, check: str) -> None:
    run = sample.facts(stuck_ages_ns=(5_000_000_000, 4_000_000_000))
    found = sample.built(run=run, config=Config(cache_dir=(place,)))
    (item,) = [item for item in found.warnings if item.code == "stuck_io"]
    assert item.message.startswith(f"{calls} had not returned")
    assert item.remedy.startswith(check)
    assert f"{calls} did not return" in str(faults_text(found))


def test_a_gpu_that_hangs_is_named_in_every_text() -> None:
    run = sample.facts(stuck_ages_ns=(5_000_000_000,), stuck_in=("GPU 1 (demotion)",))
    found = sample.built(run=run)
    (item,) = [item for item in found.warnings if item.code == "stuck_io"]
    assert item.message.startswith("1 call of GPU 1 (demotion) had not returned")
    assert item.remedy.startswith("Check the GPU by nvidia-smi, and the kernel log; ")
    assert "1 call of GPU 1 (demotion) did not return" in str(faults_text(found))
    assert "GPU 1 (demotion) hangs" in bottleneck(found).sentence


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"num_users": 7, "duration": 12.5, "seed": -3, "model": "tiny-1b"},
        {"max_requests": 30},
        {"max_requests": 30, "duration": 60.0},
        {"engine": "lmcache", "trace": "mooncake:sample"},
        {"engine": "vllm-fs", "io_threads": 3, "trace": "mooncake:sample", "duration": 60.0},
        {"enable_autoscaling": True, "autoscaler_mode": "qos", "duration": 100.0},
        {"enable_autoscaling": True, "autoscaler_mode": "capacity", "arrival": "open"},
        {"cache_dir": ["/a b", "/c'd"], "io_size": 65536, "direct": "off"},
        {"workload_preset": "2026-02", "enable_rag": True, "quiet": True, "output": "x.json"},
    ],
)
def test_the_command_gives_the_same_configuration(given: dict[str, Any]) -> None:
    config = Config.model_validate(given)
    command = command_of(config, simulated=True)
    assert settings(replayed(command)) == settings(config)
    assert "x.json" not in command, "the old result would be overwritten"


def test_a_setting_that_follows_from_another_is_not_repeated() -> None:
    command = command_of(Config.model_validate({"engine": "lmcache", "max_requests": 9}), simulated=False)
    assert command == "kvspill run --engine lmcache --max-requests 9"


def test_settings_that_only_a_file_can_give_come_by_a_pipe_in_every_shell(tmp_path: Path) -> None:
    persona = {"context": [10, 20], "generate": [1, 2], "think": [0.5, 1.0]}
    given: dict[str, Any] = {
        "personas": {"chatbot": persona},
        "qos": {"batch": {"p95_ms": 77.0}},
        "num_users": 3,
    }
    config = Config.model_validate({**given, "workload_preset": "2026-02"})
    command = command_of(config, simulated=True)
    assert "\n" not in command, "a page and a job file show it on one line"
    give, _, take = command.partition(" | ")
    assert take.endswith(" --config /dev/stdin")
    path = tmp_path / "c.yaml"
    path.write_bytes(subprocess.run(["sh", "-c", give], check=True, capture_output=True).stdout)
    again = replayed(take.replace("/dev/stdin", str(path)))
    assert settings(again) == settings(config)


def test_a_result_says_where_the_paths_of_its_command_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drive.yaml").write_text("storage: {read_gib_per_sec: 3, write_gib_per_sec: 3}\n")
    monkeypatch.chdir(tmp_path)
    flags = "--num-users 2 --max-requests 5 --model tiny-1b --quiet --device-profile drive.yaml"
    assert main(["simulate", *flags.split(), "--output", "1.json"]) == 0
    monkeypatch.chdir("/")
    result = load_result(tmp_path / "1.json")
    assert result.command_directory is not None
    assert result.command is not None
    monkeypatch.chdir(result.command_directory)
    assert main([*shlex.split(result.command)[1:], "--quiet", "--output", "2.json"]) == 0
    assert load_result(tmp_path / "2.json").digest == result.digest


def test_the_command_of_a_result_repeats_its_work(tmp_path: Path) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    flags = ["--num-users", "4", "--max-requests", "30", "--model", "tiny-1b", "--seed", "9", "--quiet"]
    assert main(["simulate", *flags, "--output", str(first)]) == 0
    result = load_result(first)
    assert result.command is not None
    words = shlex.split(result.command)
    assert main([*words[1:], "--quiet", "--output", str(second)]) == 0
    again = load_result(second)
    assert again.digest == result.digest
    assert settings(again.config) == settings(result.config)
    assert again.command == result.command
