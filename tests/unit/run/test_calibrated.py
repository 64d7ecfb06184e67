"""Deterministic generation from an engine's benchmark: all servers together are as fast as the engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.config.load import load_config
from kvspill.errors import UsageError
from kvspill.plugins import find_all
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.run.settle import settle_generation

LMCACHE = {"tier": "gpu_only", "num_prompts": 492, "total_tokens": 61605, "tokens_per_second": 9482.35}
VLLM = {"elapsed_time": 17.5, "num_requests": 500, "total_num_tokens": 239867, "tokens_per_second": 13725.6}


def file_of(tmp_path: Path, document: Any) -> str:
    path = tmp_path / "engine.json"
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize("document", [LMCACHE, VLLM])
@pytest.mark.parametrize("users", [10, 200, 2000])
def test_the_servers_together_take_the_engines_time_per_token(
    tmp_path: Path, document: dict[str, Any], users: int
) -> None:
    config = settle_generation(Config(num_users=users, calibrate_from=file_of(tmp_path, document)))
    assert config.generation_mode == "deterministic"
    speed = 1000 * config.server_count / config.generation_ms_per_token
    assert speed == pytest.approx(document["tokens_per_second"])


def test_a_run_without_any_storage_generates_as_fast_as_the_engine(tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:00:00.000000,{100 + number},125" for number in range(200)]
    trace = tmp_path / "prompts.csv"
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    config = Config(
        model="tiny-1b",
        engine="lmcache",
        trace=f"azure:{trace}",
        servers=100,
        warmup=0,
        cpu_mem_gb=8,
        storage_tier="off",
        calibrate_from=file_of(tmp_path, LMCACHE),
    )
    result = run_trials(make_plan(config, True), Progress(quiet=True))
    assert result.number("avg_throughput_tokens_per_sec") == pytest.approx(9482.35, rel=0.01)
    assert result.config["decode_ms_per_token"] == pytest.approx(100_000 / 9482.35)


@pytest.mark.parametrize("document", [{}, {"tokens_per_second": 0}, {"summary": {}}, [1]])
def test_what_is_no_engines_result_is_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(UsageError, match=r"no benchmark result of vLLM or LMCache"):
        settle_generation(Config(calibrate_from=file_of(tmp_path, document)))


@pytest.mark.parametrize("value", ["5", "30"])
def test_a_time_per_token_beside_it_contradicts_it(tmp_path: Path, value: str) -> None:
    given = {"calibrate_from": file_of(tmp_path, VLLM), "decode_ms_per_token": value}
    typed = {name: (f"--{name}", value) for name, value in given.items()}
    with pytest.raises(UsageError, match="contradicts --decode-ms-per-token"):
        settle_generation(load_config(typed, declared=find_all()))


@pytest.mark.parametrize(("document", "warned"), [(LMCACHE, False), (VLLM, True)])
def test_a_count_that_has_the_prompts_in_it_is_said(
    tmp_path: Path, document: dict[str, Any], warned: bool
) -> None:
    config = Config(model="tiny-1b", max_requests=5, calibrate_from=file_of(tmp_path, document))
    result = run_trials(make_plan(config, True), Progress(quiet=True))
    assert ("prompts_counted" in {item.code for item in result.warnings}) is warned
