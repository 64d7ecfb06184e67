"""Claims about the configuration itself: defaults, derived values and contradictions."""

from typing import Any

import pytest
from pydantic import ValidationError

from kvspill.config import Config
from kvspill.config.groups import PERSONA_PRESETS, Prefix
from kvspill.errors import UsageError
from kvspill.records import GIB, MIB


def test_the_defaults_are_those_of_the_specification() -> None:
    config = Config()
    assert (config.model, config.num_users, config.duration, config.seed) == ("llama3.1-8b", 50, 60, 42)
    assert (config.cpu_mem_gb, config.gpu_bytes, config.storage_bytes) == (4, 0, None)
    assert (config.io_size, config.io_threads, config.decode_batch_size) == (4 * MIB, 32, 32)
    assert (config.arrival, config.placement, config.eviction_policy) == ("open", "waterfall", "lru")
    assert (config.verify, config.sync, config.direct, config.prefill_only_tokens) == (
        "stamp",
        "none",
        "auto",
        10_000,
    )


@pytest.mark.parametrize(("duration", "warmup"), [(60, 6), (300, 30), (600, 30), (20, 2)])
def test_warmup_is_a_tenth_of_the_duration_and_at_most_30_s_as_s3_says(
    duration: float, warmup: float
) -> None:
    assert Config(duration=duration).warmup_seconds == warmup


def test_fixed_work_is_measured_whole_whatever_time_it_is_given_unless_a_warmup_is_asked_for() -> None:
    assert Config(duration=300, max_requests=80).warmup_seconds == 0
    assert Config(duration=300, max_requests=80, warmup=5).warmup_seconds == 5


def test_max_requests_takes_the_default_duration_away_as_l4_says() -> None:
    assert Config(max_requests=200).duration is None
    assert Config(max_requests=200, duration=10).duration == 10
    assert Config(max_requests=0).duration == 60


@pytest.mark.parametrize(("users", "servers"), [(10, 10), (500, 500), (5000, 500)])
def test_there_are_as_many_servers_as_users_and_at_most_500_as_l1_says(users: int, servers: int) -> None:
    assert Config(num_users=users).server_count == servers
    assert Config(num_users=users, servers=7).server_count == 7


@pytest.mark.parametrize(
    ("mode", "per_token"), [("none", 0), ("fast", 2), ("realistic", 30), ("deterministic", 30)]
)
def test_generation_takes_the_time_of_its_mode(mode: str, per_token: float) -> None:
    assert Config(generation_mode=mode).generation_ms_per_token == per_token


def test_a_calibrated_time_counts_in_deterministic_mode_only() -> None:
    times: dict[str, Any] = {"decode_ms_per_token": 11, "prefill_us_per_token": 70}
    config = Config(generation_mode="deterministic", **times)
    assert (config.generation_ms_per_token, config.generation_us_per_prefill_token) == (11, 70)
    config = Config(generation_mode="fast", **times)
    assert (config.generation_ms_per_token, config.generation_us_per_prefill_token) == (2, 0)


def test_gb_means_gib_as_s6_says() -> None:
    assert Config(cpu_mem_gb=2).cpu_bytes == 2 * GIB


def test_own_persona_values_lie_over_the_preset() -> None:
    config = Config(
        personas={"coding": {"context": [10, 20]}, "bot": {**PERSONA_PRESETS["2025-11"]["chatbot"]}}
    )
    assert config.personas["coding"].context == (10, 20)
    assert config.personas["coding"].generate == (100, 500)
    assert set(config.personas) == {"chatbot", "coding", "document", "bot"}
    assert Config(workload_preset="2026-02").personas["coding"].context == (4096, 25000)


def test_an_unused_persona_does_not_decide_the_largest_entry() -> None:
    whole, short = Config(), Config(personas={"document": {"weight": 0}})
    assert whole.largest_entry_bytes == 8192 * 131_072
    assert short.largest_entry_bytes == 4096 * 131_072


def test_the_prompts_are_as_long_as_they_say() -> None:
    for prompt in Prefix().prompts:
        assert prompt.tokens == pytest.approx(len(prompt.text) / 4, rel=0.15)


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        Config().num_users = 3  # type: ignore[misc]


def test_a_changed_copy_is_validated() -> None:
    assert Config(max_requests=5).changed(num_users=3).duration is None
    with pytest.raises(ValidationError):
        Config().changed(num_users=0)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError):
        Config(users=5)  # type: ignore[call-arg]


CONTRADICTIONS = [
    (
        {"warmup": 60},
        "--warmup 60: leaves nothing of --duration 60 to measure; "
        "give a shorter warm-up or a longer duration",
    ),
    (
        {"gpu_tier": "off", "gpu_mem_gb": 16},
        "--gpu-tier off contradicts --gpu-mem-gb 16; leave one of them out",
    ),
    ({"gpu_tier": "modelled"}, "--gpu-tier modelled: has no size; give --gpu-mem-gb as well"),
    (
        {"storage_tier": "off", "storage_capacity_gb": 5},
        "--storage-tier off contradicts --storage-capacity-gb 5; leave one of them out",
    ),
    (
        {"storage_tier": "off", "cache_dir": ["/mnt/nvme"]},
        "--storage-tier off contradicts --cache-dir /mnt/nvme; leave one of them out",
    ),
    (
        {"storage_tier": "off", "cpu_mem_gb": 0},
        "--storage-tier off leaves no tier, as the GPU and DRAM tiers are 0; "
        "give --cpu-mem-gb or --gpu-mem-gb, or --storage-tier on",
    ),
    ({"duration": None}, "--duration: missing; give --duration SECONDS or --max-requests N"),
    ({"cache_dir": ["/a", "/b", "/a"]}, "--cache-dir /a: given twice; name each directory once"),
    (
        {"tensor_parallel": 3},
        "--tensor-parallel 3: does not divide the 8 KV heads of llama3.1-8b; "
        "give one of 1, 2, 4, 8 or a multiple of 8",
    ),
    (
        {"personas": {"coding": {"think": [0, 1]}}},
        "personas.coding.think 0: open arrivals without a pause never end; "
        "give at least 0.001 s or use --arrival closed",
    ),
]


@pytest.mark.parametrize(("fields", "line"), CONTRADICTIONS)
def test_contradictions_are_refused_with_one_line(fields: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        Config(**fields)
    assert str(caught.value) == line


def test_a_storage_tier_below_the_largest_entry_is_refused_with_the_value_that_fits() -> None:
    with pytest.raises(UsageError) as caught:
        Config(storage_capacity_gb=2, model="llama3.1-70b-instruct")
    assert str(caught.value) == (
        "--storage-capacity-gb 2: the storage tier can use 2.00 GiB of it, but the largest entry takes "
        "2.50 GiB (8,192 tokens of llama3.1-70b-instruct); give --storage-capacity-gb 2.5 or more, "
        "or a smaller --model"
    )
    assert Config(storage_capacity_gb=2.5, model="llama3.1-70b-instruct").storage_bytes == 2.5 * GIB


def test_the_value_that_a_refused_memory_tier_is_told_to_take_fits() -> None:
    with pytest.raises(UsageError, match=r"give --cpu-mem-gb 1\.3 or more"):
        Config(storage_tier="off", cpu_mem_gb=1)
    Config(storage_tier="off", cpu_mem_gb=1.3)


@pytest.mark.parametrize(("flag", "name"), [("cpu_mem_gb", "DRAM"), ("gpu_mem_gb", "GPU")])
def test_a_memory_tier_that_is_too_small_is_named(flag: str, name: str) -> None:
    none = {"cpu_mem_gb": 0, "gpu_mem_gb": 0}
    with pytest.raises(UsageError, match=f"1: the {name} tier can use 819 MiB of it, but"):
        Config(storage_tier="off", **{**none, flag: 1})


def test_a_minimum_throughput_with_the_latency_profile_is_fine() -> None:
    assert Config(min_tokens_per_sec=10).performance_profile == "latency"
