"""The flags of workloads from the shell to the result file, in virtual time."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvspill.cli.main import main
from kvspill.cli.options import config_parser, parse_config
from kvspill.config.unused import unused_settings

FAST = "--device-profile null --generation-mode none --quiet"


def simulate(tmp_path: Path, line: str, code: int = 0) -> dict[str, Any]:
    output = tmp_path / "result.json"
    assert main(["simulate", *f"{FAST} {line}".split(), "--output", str(output)]) == code
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def moved(result: dict[str, Any]) -> tuple[float, float]:
    cache = result["summary"]["cache_stats"]
    return cache["decode_bytes_read_gb"], cache["prefill_bytes_written_gb"]


@pytest.mark.parametrize(
    ("kind", "requests"),
    [("azure", 60), ("bailian", 60), ("burstgpt", 57), ("mooncake", 60), ("sharegpt", 1064), ("weka", 30)],
)
def test_every_format_runs_to_its_end_without_a_duration(tmp_path: Path, kind: str, requests: int) -> None:
    result = simulate(tmp_path, f"--trace {kind}:sample")
    assert result["requests_completed"] == requests
    assert result["workload"]["kind"] == kind
    assert result["summary"]["prefix_cache_stats"]["system_prompt_reuse"] == 0


@pytest.mark.parametrize("line", ["--use-burst-trace --burst-trace-path sample", "--trace burstgpt:sample"])
def test_both_ways_to_name_a_burst_trace_do_the_same(tmp_path: Path, line: str) -> None:
    """Timestamps are seconds: 57 requests with tokens over 107 s, ten times as fast."""
    result = simulate(tmp_path, f"{line} --trace-speedup 10")
    assert result["requests_completed"] == 57
    assert result["window"]["measured_seconds"] == pytest.approx(10.7, abs=0.05)
    assert result["workload"]["empty_rows"] == 3


def test_a_run_ends_with_its_recording_even_before_its_duration(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--trace azure:sample --replay-cycles 2 --duration 3600 --warmup 0")
    assert result["requests_completed"] == 120
    assert result["window"]["measured_seconds"] == pytest.approx(2 * 35.447 + 0.6, abs=0.1)


def test_a_recording_is_repeated_while_the_duration_lasts(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--trace azure:sample --duration 200 --warmup 0")
    assert result["window"]["measured_seconds"] == 200
    assert result["workload"]["passes_begun"] >= 6


def test_closed_arrivals_ignore_the_times_and_do_the_same_work(tmp_path: Path) -> None:
    opened = simulate(tmp_path, "--trace mooncake:sample")
    closed = simulate(tmp_path, "--trace mooncake:sample --arrival closed --num-users 3")
    assert closed["digest"] == opened["digest"]
    assert closed["window"]["measured_seconds"] < 1 < opened["window"]["measured_seconds"]


def test_skipped_rows_are_counted_in_the_result_and_said_aloud(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("Timestamp,Request tokens,Response tokens\n1,5,5\n2,oops,5\n3,5,5\n")
    result = simulate(tmp_path, f"--trace burstgpt:{trace} --skip-bad-rows")
    assert result["workload"]["bad_rows_skipped"] == 1
    warning = next(item for item in result["warnings"] if item["code"] == "bad_rows")
    assert f"{trace}:3: Request tokens 'oops' is not a number" in warning["message"]


def test_a_trace_that_hashes_contents_alone_replays_with_equal_blocks_in_a_row(tmp_path: Path) -> None:
    row = {"timestamp": 1, "input_length": 48, "output_length": 1, "hash_ids": [1, 2, 1]}
    trace = tmp_path / "t.jsonl"
    trace.write_text("".join(json.dumps(row | {"chat_id": chat}) + "\n" for chat in (1, 2)))
    result = simulate(tmp_path, f"--trace bailian:{trace} --io-model prefix --cpu-mem-gb 0")
    block_gb = 16 * 131_072 / 2**30
    assert moved(result) == pytest.approx((3 * block_gb, 3 * block_gb))


def test_a_block_twice_in_a_chained_row_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"timestamp": 1, "input_length": 1536, "output_length": 1, "hash_ids": [1, 2, 1]}
    trace = tmp_path / "t.jsonl"
    trace.write_text(f"{json.dumps(row)}\n" * 2)
    argv = ["simulate", *FAST.split(), "--trace", f"mooncake:{trace}", "--io-model", "prefix"]
    assert main(argv) == 2
    assert f"{trace}:1: hash_ids lists block 1 again in place 3" in capsys.readouterr().err


@pytest.mark.parametrize("arrival", ["open", "closed"])
def test_a_broken_row_ends_the_run_with_its_place(
    tmp_path: Path, arrival: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("Timestamp,Request tokens,Response tokens\n" + "1,5,5\n" * 1500 + "2,oops,5\n")
    argv = ["simulate", *FAST.split(), "--trace", f"burstgpt:{trace}", "--arrival", arrival]
    assert main([*argv, "--output", str(tmp_path / "r.json")]) == 2
    assert capsys.readouterr().err == (
        f"kvspill: error: {trace}:1502: Request tokens 'oops' is not a number; "
        "correct that row or give --skip-bad-rows\n"
    )
    assert not (tmp_path / "r.json").exists()


def test_an_entry_larger_than_the_last_tier_fails_its_request_and_is_said_aloud(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--trace mooncake:sample --storage-capacity-gb 1 --cpu-mem-gb 0", code=1)
    failed = next(item for item in result["warnings"] if item["code"] == "failed_requests")
    assert "write: too_large" in failed["message"]
    assert 0 < result["requests_completed"] < 60


def test_documents_are_stored_before_the_load_uncounted_and_then_found(tmp_path: Path) -> None:
    """S3, S5"""
    plain = simulate(tmp_path, "--max-requests 300")
    result = simulate(tmp_path, "--max-requests 300 --enable-rag --rag-num-docs 4")
    assert result["workload"]["rag_documents"] == 4
    assert moved(result)[1] == moved(plain)[1]
    assert moved(result)[0] > moved(plain)[0]
    assert result["summary"]["cache_stats"]["cache_misses"] == plain["summary"]["cache_stats"]["cache_misses"]


def test_a_prefill_node_writes_what_the_requests_need_and_reads_nothing(tmp_path: Path) -> None:
    both = simulate(tmp_path, "--max-requests 200 --disable-prefix-caching")
    result = simulate(tmp_path, "--max-requests 200 --disable-prefix-caching --prefill-only")
    assert moved(result) == (0, moved(both)[1])
    assert result["summary"]["cache_stats"]["cache_hits"] == 0


def test_a_decode_node_finds_all_and_writes_nothing(tmp_path: Path) -> None:
    result = simulate(tmp_path, "--max-requests 200 --decode-only --populate-entries 30")
    cache = result["summary"]["cache_stats"]
    assert moved(result)[1] == 0
    assert (cache["cache_hit_rate"], cache["cache_misses"]) == (1, 0)
    assert result["workload"]["stored_entries"] == 30


@pytest.mark.parametrize("process", ["constant", "poisson"])
@pytest.mark.parametrize("kind", ["", "--enable-rag", "--dataset-path sample", "--trace weka:sample"])
def test_a_rate_works_in_every_mode(tmp_path: Path, kind: str, process: str) -> None:
    result = simulate(tmp_path, f"{kind} --request-rate 20 --rate-process {process} --max-requests 30")
    assert result["requests_completed"] == 30
    assert result["window"]["measured_seconds"] == pytest.approx(29 / 20, rel=0.6)


def test_deterministic_generation_takes_a_time_per_token_of_context_and_of_answer(tmp_path: Path) -> None:
    """L5"""
    trace = tmp_path / "t.csv"
    trace.write_text("Timestamp,Request tokens,Response tokens\n1,1000,100\n")
    output = tmp_path / "result.json"
    line = f"--trace burstgpt:{trace} --device-profile null --generation-mode deterministic --quiet"
    for more, seconds in (("", 3.0), ("--decode-ms-per-token 20 --prefill-us-per-token 500", 2.5)):
        assert main(["simulate", *f"{line} {more} --output {output}".split()]) == 0
        latency = json.loads(output.read_text())["summary"]["generation_latency_ms"]["mean"]
        assert latency / 1000 == pytest.approx(seconds, rel=0.01)


CONTRADICTIONS = [
    (
        "--trace mooncake:a --dataset-path b",
        "--dataset-path contradicts --trace; replay one recording at a time",
    ),
    (
        "--trace mooncake:a --enable-rag",
        "--enable-rag contradicts --trace: nothing is added to a recording; leave one out",
    ),
    (
        "--burst-trace-path a.csv",
        "--burst-trace-path a.csv: is not used without --use-burst-trace; give both",
    ),
    (
        "--trace tape:a",
        "--trace tape:a: not of the form FORMAT:PATH with a known format; choose one of azure, bailian, "
        "burstgpt, kvcache, lmcache, mooncake, sharegpt, weka, as in --trace mooncake:trace.jsonl",
    ),
    ("--trace-speedup 0", "--trace-speedup 0: out of range; give 1e-06 to 1,000,000,000,000"),
    (
        "--trace mooncake:sample --trace-speedup 1e-300",
        "--trace-speedup 1e-300: out of range; give 1e-06 to 1,000,000,000,000",
    ),
    (
        "--request-rate 5e-324",
        "--request-rate 5e-324: out of range; give 1e-06 to 1,000,000,000,000, or 0 for the default",
    ),
    ("--prefill-only --decode-only", "--prefill-only contradicts --decode-only; give one of them"),
    (
        "--dataset-path /nope.json",
        "--dataset-path /nope.json: cannot be read (No such file or directory); name a readable file",
    ),
    (
        "--dataset-path sample --trace-speedup 2",
        "--trace-speedup 2: conversations have no recorded times; leave it out, or give --request-rate",
    ),
]


@pytest.mark.parametrize(("line", "message"), CONTRADICTIONS)
def test_what_cannot_be_meant_is_refused(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *line.split()]) == 2
    assert capsys.readouterr().err == f"kvspill: error: {message}\n"


UNUSED = [
    ("--trace-speedup 2", "no recording is replayed"),
    ("--replay-cycles 3", "no recording is replayed"),
    ("--skip-bad-rows", "no recording is replayed"),
    ("--max-conversations 7", "no ShareGPT conversations are replayed"),
    ("--trace azure:sample --max-conversations 7", "no ShareGPT conversations are replayed"),
    (
        "--trace azure:sample --request-rate 5 --trace-speedup 2",
        "--request-rate gives the requests new times",
    ),
    (
        "--trace azure:sample --arrival closed --trace-speedup 2",
        "--arrival closed ignores the recorded times",
    ),
    ("--rate-process poisson", "no rate is given"),
    ("--rag-num-docs 4", "nothing is retrieved"),
    ("--min-tokens-per-sec 5", "the latency profile has no target of throughput"),
    ("--prefill-us-per-token 100", "only --generation-mode deterministic is calibrated by it"),
    ("--decode-ms-per-token 5", "only --generation-mode deterministic is calibrated by it"),
    (
        "--block-tokens 64",
        "only --io-model prefix has blocks; it only changes what read inflation is compared with",
    ),
    (
        "--trace mooncake:sample --io-model prefix --block-tokens 64",
        "rows keep the blocks that they list; it counts for rows without a list only",
    ),
    ("--promote off", "only --io-model prefix has blocks"),
    ("--io-model prefix --cpu-mem-gb 0 --promote off", "there is no DRAM tier to copy blocks into"),
    ("--stream-tokens-per-read 4", "only --io-model stream reads the whole KV at every step"),
    ("--io-model prefix --history all", "only --io-model mlperf has that rule"),
    ("--populate-entries 5", "only a decode node has entries before its load"),
    ("--cpu-mem-gb 0 --dram-threads 2", "there is no DRAM tier"),
    ("--dram-threads 2", "the device profile does not know it"),
    ("--trace azure:sample --disable-prefix-caching", "a recording decides what is asked"),
    ("--trace azure:sample --disable-multi-turn", "a recording decides what is asked"),
]


@pytest.mark.parametrize(("line", "reason"), UNUSED)
def test_a_flag_without_effect_is_warned_about_in_the_result(tmp_path: Path, line: str, reason: str) -> None:
    result = simulate(tmp_path, f"--max-requests 20 --model tiny-1b {line}")
    found = [item["message"] for item in result["warnings"] if item["code"] == "unused_setting"]
    flag = line[line.rindex("--") :]
    assert found == [f"{flag} has no effect: {reason}."]


SEARCHES = [
    ("qos", "--capacity-metric generated", "only --autoscaler-mode capacity maximises a throughput"),
    ("capacity", "--target-saturation 0.5", "only --autoscaler-mode qos has a target of saturation"),
    ("capacity", "--slo-percentile 99", "only --autoscaler-mode slo has a target of latency"),
]


@pytest.mark.parametrize(("mode", "line", "reason"), SEARCHES)
def test_a_target_of_another_search_is_warned_about(mode: str, line: str, reason: str) -> None:
    words = shlex.split(f"--enable-autoscaling --autoscaler-mode {mode} {line}")
    parser = config_parser("kvspill run", "", "")
    found = list(unused_settings(parse_config(parser, words, environ={}), parser.declared))
    assert [(item.said, item.reason) for item in found] == [(line, reason)]


@pytest.mark.parametrize(
    "line",
    [
        "--trace weka:sample --arrival closed --trace-speedup 2",
        "--trace azure:sample --trace-speedup 2 --replay-cycles 1 --skip-bad-rows",
        "--dataset-path sample --max-conversations 7 --disable-multi-turn",
        "--request-rate 5 --rate-process poisson",
        "--generation-mode deterministic --prefill-us-per-token 1 --decode-ms-per-token 1",
        "--io-model prefix --block-tokens 64 --promote off",
        "--engine lmcache",
        "--rag-num-docs 10",
    ],
)
def test_a_flag_with_effect_and_a_default_said_aloud_are_not_warned_about(tmp_path: Path, line: str) -> None:
    result = simulate(tmp_path, f"--max-requests 20 --model tiny-1b {line}")
    assert "unused_setting" not in [item["code"] for item in result["warnings"]]


def test_values_of_a_configuration_file_that_a_run_does_not_need_are_not_warned_about(tmp_path: Path) -> None:
    settings = tmp_path / "c.yaml"
    settings.write_text("trace_speedup: 2\nrag_num_docs: 4\nblock_tokens: 64\n")
    result = simulate(tmp_path, f"--max-requests 20 --model tiny-1b --config {settings}")
    assert "unused_setting" not in [item["code"] for item in result["warnings"]]


def test_a_flag_without_effect_is_said_on_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "simulate --device-profile null --max-requests 20 --model tiny-1b --trace-speedup 2"
    assert main([*line.split(), "--output", str(tmp_path / "r.json")]) == 0
    assert "--trace-speedup 2 has no effect" in capsys.readouterr().out


def test_print_config_shows_the_settings_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--print-config", "--num-users", "7"]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert (settings["num_users"], settings["workload_preset"], settings["sync"]) == (7, "2025-11", "none")
    closed = str(Path(__file__).parents[2] / "config.yaml")
    assert main(["run", "--print-config", "--config", closed]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert (settings["workload_preset"], settings["sync"]) == ("2026-02", "data")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    ["can --users 7", "plan --num-users 7", "calibrate --io-threads 7", "validate lmcache --num-users 7"],
)
def test_print_config_runs_nothing_in_any_command_that_offers_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*line.split(), "--print-config"]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert 7 in (settings["num_users"], settings["io_threads"])
    assert not list(tmp_path.iterdir())


def test_a_latency_target_without_a_search_judges_every_class(tmp_path: Path) -> None:
    load = "--duration 60 --num-users 5 --arrival closed --model tiny-1b --device-profile sata-ssd"
    own, given = (simulate(tmp_path, f"{load} {flag}") for flag in ("", "--slo-target-ms 90000"))

    def judged(result: dict[str, Any]) -> dict[str, tuple[float, bool]]:
        found = {name: entry["sla"] for name, entry in result["summary"]["qos_metrics"].items()}
        return {name: (sla["target_p95_ms"], sla["violations"] > 0) for name, sla in found.items() if sla}

    assert {target for target, _late in judged(own).values()} <= {50, 100, 1000}
    assert any(late for _target, late in judged(own).values())
    assert set(judged(given).values()) == {(90_000, False)}
    assert "unused_setting" not in [item["code"] for item in given["warnings"]]


@pytest.mark.parametrize(
    "flag", ["--slo-latency end-to-end", "--slo-percentile 99", "--slo-classes interactive"]
)
@pytest.mark.parametrize("command", ["run", "simulate"])
def test_a_term_of_a_promise_that_nobody_searches_for_is_refused(
    command: str,
    flag: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, "--max-requests", "5", *flag.split()]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{flag.split()[0]}: only a search for the latency target uses it" in error
    assert not list(tmp_path.iterdir())
