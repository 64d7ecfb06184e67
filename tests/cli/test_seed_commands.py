"""Every command line of the specification parses, or is answered by "not available in this version"."""

import re
import shlex

import pytest

from kvspill.cli.options import config_parser, parse_config
from kvspill.config import Config
from kvspill.errors import UsageError

STORAGE_ONLY = """--model llama3.1-8b --num-users 50 --duration 180 --gpu-mem-gb 0 --cpu-mem-gb 0.5
    --generation-mode realistic --cache-dir /mnt/nvme --seed 42 --output results_storage_only.json"""
THREE_TIER = """--model llama3.1-8b --num-users 100 --duration 300 --gpu-mem-gb 16 --cpu-mem-gb 32
    --generation-mode realistic --cache-dir /mnt/nvme --seed 42 --output results_realistic_production.json"""
AUTOSCALE_QOS = """--model llama3.1-8b --num-users 20 --duration 300 --gpu-mem-gb 16 --cpu-mem-gb 32
    --enable-autoscaling --autoscaler-mode qos --generation-mode realistic --cache-dir /mnt/nvme --seed 42
    --output results_autoscaling_qos.json"""
AUTOSCALE_CAPACITY = """--model llama3.1-70b-instruct --num-users 10 --duration 180 --gpu-mem-gb 0
    --cpu-mem-gb 32 --enable-autoscaling --autoscaler-mode capacity --generation-mode none
    --cache-dir /mnt/nvme --seed 42 --output results_autoscaling_capacity.json"""
VALIDATE_GPU = """--model llama3.1-8b --num-users 10 --duration 120 --gpu-mem-gb 24 --cpu-mem-gb 0
    --generation-mode deterministic --seed 42 --output validation_kv_cache_gpu_only.json"""
VALIDATE_OFFLOAD = """--model llama3.1-8b --num-users 20 --duration 120 --gpu-mem-gb 8 --cpu-mem-gb 32
    --generation-mode deterministic --seed 42 --output validation_kv_cache_offload.json"""
SUBMISSION_8B = """--model llama3.1-8b --num-users 150 --duration 600 --gpu-mem-gb 0 --cpu-mem-gb 2
    --generation-mode realistic --performance-profile throughput --seed 42
    --output mlperf_v3_storage_submission_8b.json"""
SUBMISSION_70B = """--model llama3.1-70b-instruct --num-users 40 --duration 600 --gpu-mem-gb 0 --cpu-mem-gb 4
    --generation-mode realistic --performance-profile throughput --seed 42
    --output mlperf_v3_storage_submission_70b.json"""
RAG = """--model llama3.1-8b --num-users 30 --duration 300 --gpu-mem-gb 16 --cpu-mem-gb 32 --enable-rag
    --generation-mode realistic --cache-dir /mnt/nvme --seed 42 --output results_rag_workload.json"""
MAX_STRESS = """--model llama3.1-70b-instruct --num-users 10 --duration 300 --gpu-mem-gb 16 --cpu-mem-gb 64
    --enable-rag --enable-autoscaling --autoscaler-mode capacity --generation-mode realistic
    --cache-dir /mnt/nvme --seed 42 --output results_max_stress.json"""
SHAREGPT = """--model mistral-7b --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json
    --max-conversations 500 --gpu-mem-gb 0 --cpu-mem-gb 0 --cache-dir /mnt/nvme --num-users 50
    --max-requests 500 --generation-mode none --seed 42 --output kvcache_nvme_only.json"""
STRESS_OPTION = """--model llama3.1-8b --cpu-memory-gb 0 --max-concurrent-allocs 16 --users 200 --duration 300
    --generation-mode none --output results/mlperf_stress_host_trial1.json"""
THROUGHPUT_OPTION = """--model llama3.1-8b --cpu-memory-gb 4 --max-concurrent-allocs 0 --users 100
    --duration 300 --generation-mode none --output results/mlperf_storage_host_trial1.json"""
HARNESS = """--seed 43 --output /tmp/rank_1/kvcache_results.json --cache-dir /mnt/nvme/rank_1
    --model llama3.1-70b-instruct --num-users 70 --duration 300 --gpu-mem-gb 0 --cpu-mem-gb 0
    --max-concurrent-allocs 4 --generation-mode none"""


def parse(line: str) -> Config:
    return parse_config(config_parser("kv-cache.py", "", ""), shlex.split(line), {})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (STORAGE_ONLY, {"num_users": 50, "duration": 180, "cpu_mem_gb": 0.5, "cache_dir": ("/mnt/nvme",)}),
        (THREE_TIER, {"num_users": 100, "gpu_mem_gb": 16, "cpu_mem_gb": 32, "generation_mode": "realistic"}),
        (VALIDATE_GPU, {"gpu_mem_gb": 24, "cpu_mem_gb": 0, "generation_mode": "deterministic"}),
        (VALIDATE_OFFLOAD, {"gpu_mem_gb": 8, "cpu_mem_gb": 32, "num_users": 20}),
        (SUBMISSION_8B, {"num_users": 150, "duration": 600, "performance_profile": "throughput", "seed": 42}),
        (SUBMISSION_70B, {"model": "llama3.1-70b-instruct", "num_users": 40, "cpu_mem_gb": 4}),
        (STRESS_OPTION, {"num_users": 200, "cpu_mem_gb": 0, "max_concurrent_allocs": 16}),
        (THROUGHPUT_OPTION, {"num_users": 100, "cpu_mem_gb": 4, "max_concurrent_allocs": 0}),
        (HARNESS, {"num_users": 70, "seed": 43, "max_concurrent_allocs": 4, "generation_mode": "none"}),
        (AUTOSCALE_QOS, {"enable_autoscaling": True, "autoscaler_mode": "qos", "arrival": "closed"}),
        (AUTOSCALE_CAPACITY, {"enable_autoscaling": True, "autoscaler_mode": "capacity", "arrival": "open"}),
        (RAG, {"enable_rag": True, "rag_num_docs": 10, "num_users": 30}),
        (MAX_STRESS, {"enable_rag": True, "enable_autoscaling": True, "autoscaler_mode": "capacity"}),
        (
            SHAREGPT,
            {
                "dataset_path": "ShareGPT_V3_unfiltered_cleaned_split.json",
                "max_conversations": 500,
                "max_requests": 500,
                "duration": None,
            },
        ),
        ("--max-requests 200 --seed 42", {"max_requests": 200, "duration": None}),
    ],
)
def test_a_command_of_the_specification_means_what_it_says(line: str, expected: dict[str, object]) -> None:
    config = parse(line)
    assert {name: getattr(config, name) for name in expected} == expected


def test_the_flag_of_latency_tracing_is_that_of_the_drop_in_command() -> None:
    assert parse("--enable-latency-tracing").trace_latency
    assert parse("--trace-latency").trace_latency


def test_directories_may_be_repeated() -> None:
    assert parse("--cache-dir /a --cache-dir /b").cache_dir == ("/a", "/b")


def test_the_same_directory_given_twice_in_the_same_words_is_one() -> None:
    config = parse("--cache-dir /mnt/nvme --seed 42 --enable-rag --cache-dir /mnt/nvme --seed 42")
    assert config.cache_dir == ("/mnt/nvme",)


def test_every_flag_sets_its_field() -> None:
    line = """--workload-preset 2026-02 --arrival closed --servers 9 --max-queue 10 --history all --trials 1
        --tensor-parallel 2 --placement spill --eviction-policy s3-fifo --io-size 1M --io-threads 4
        --sync data --direct off --verify full --storage-backend null --device-profile nvme-gen5
        --min-tokens-per-sec 5 --device-bandwidth-gbps 7 --warmup 1 --gpu-tier modelled --gpu-mem-gb 1
        --quiet --debug
        --disable-multi-turn --disable-prefix-caching --decode-batch-size 8 --prefill-only-tokens 99
        --decode-ms-per-token 3 --prefill-us-per-token 4 --storage-capacity-gb 8 --storage-tier on
        --conversation-end-probability 0.5 --max-turns 3
        --trace mooncake:a --trace-speedup 2 --replay-cycles 3 --skip-bad-rows --max-conversations 7
        --decode-only --populate-entries 5 --rag-num-docs 4 --rate-process poisson"""
    config = parse(line)
    words = shlex.split(line)
    given = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    assert given <= config.model_fields_set
    assert set(config.sources) == given


def test_zero_means_no_limit_where_the_drop_in_command_says_so() -> None:
    config = parse("--max-requests 0 --storage-capacity-gb 0")
    assert (config.max_requests, config.storage_capacity_gb, config.duration) == (None, None, 60)


@pytest.mark.parametrize("flag", ["--max-requests", "--storage-capacity-gb", "--request-rate"])
def test_help_and_refusal_say_what_zero_means(flag: str) -> None:
    with pytest.raises(UsageError, match=r"out of range; give .*, or 0 for the default$"):
        parse(f"{flag}=-1")
    text = config_parser("kv-cache.py", "", "", full=True).format_help()
    described = " ".join(text[text.index(f"\n  {flag} ") + 1 :].split("\n  --")[0].split())
    assert re.search(r"\b(; 0:|with 0:) ", described), described
