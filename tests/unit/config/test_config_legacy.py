"""Claims about files with the keys of the MLPerf harness."""

from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.config.load import load_config
from kvspill.errors import UsageError

HARNESS_FILE = """\
model_configs:
  tiny-1b: {name: Tiny, num_layers: 12, hidden_dim: 1024, num_heads: 8, kv_heads: 4, dtype: float16}
  deepseek-v3: {num_layers: 61, hidden_dim: 7168, num_heads: 128, kv_heads: 128, attention_type: mla,
                kv_lora_rank: 512, qk_rope_head_dim: 64}
  qwen3-32b: {num_layers: 64, hidden_dim: 5120, num_heads: 64, kv_heads: 8, kv_dim_per_head: 128}
  own: {num_layers: 4, hidden_dim: 256, num_heads: 4, kv_heads: 2, dtype: bfloat16, kv_dim_per_head: 0}
user_templates:
  chatbot: {context_range: [512, 4096], generation_range: [50, 200], think_time_range: [0.1, 0.5]}
  coding: {context_range: [4096, 25000], generation_range: [100, 500], think_time_range: [0.2, 1.0]}
  document: {context_range: [4096, 16384], generation_range: [200, 800], think_time_range: [0.3, 1.5]}
generation_timing: {none: 0.0, fast: 0.002, realistic: 0.030}
qos_profiles:
  interactive: {target_latency_p95_ms: 40, target_latency_p99_ms: 90, target_latency_p999_ms: 150,
                priority: 3}
qos_distribution: {interactive_probability: 0.25, responsive_threshold: 0.60}
eviction: {max_recursion_depth: 10, target_usage_ratio: 0.8}
gpu_backend: {memory_fraction: 0.9}
prefix_cache: {min_prefix_length: 50, system_prompt_hit_probability: 0.3}
rag: {chunk_size_tokens: 256, top_k_chunks: 3, request_probability: 0.2, retrieval_distribution: zipfian,
      small_model_doc_tokens_min: 2000, max_chunk_bytes: 268435456}
conversation: {max_conversations: 1000, max_turns_per_conv: 40, end_conversation_probability: 0.1}
autoscaler: {min_users: 1, scale_up_factor: 1.2}
decode: {batch_size: 16}
sharegpt: {max_context_tokens: 8192}
saturation_detection: {queue_depth_threshold: 100}
validation_limits: {max_users: 100000}
"""


@pytest.fixture
def harness(tmp_path: Path) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(HARNESS_FILE)
    return load_config({}, {}, str(path))


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config({}, {}, str(path))
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_personas_and_conversations_are_taken_over(harness: Config) -> None:
    assert harness.personas == Config(workload_preset="2026-02").personas
    assert (harness.max_turns, harness.conversation_end_probability) == (40, 0.1)
    assert (harness.decode_batch_size, harness.prefix.probability) == (16, 0.3)


def test_documents_and_conversations_of_a_file_are_taken_over(harness: Config) -> None:
    assert (harness.rag.chunk_tokens, harness.rag.top_k, harness.rag.probability) == (256, 3, 0.2)
    assert (harness.rag.distribution, harness.rag.document_tokens) == ("zipf", (2000, 12_000))
    assert harness.sharegpt.max_context_tokens == 8192


def test_thresholds_become_shares(harness: Config) -> None:
    shares = (harness.qos.interactive.share, harness.qos.responsive.share, harness.qos.batch.share)
    assert shares == pytest.approx((0.25, 0.35, 0.40))
    assert (harness.qos.interactive.p95_ms, harness.qos.interactive.p99_ms) == (40, 90)
    assert harness.qos.batch.p95_ms == 1000


@pytest.mark.parametrize(
    ("model", "nbytes"), [("tiny-1b", 24_576), ("deepseek-v3", 70_272), ("qwen3-32b", 262_144), ("own", 2048)]
)
def test_models_are_taken_over(harness: Config, model: str, nbytes: int) -> None:
    assert harness.changed(model=model).kv.of(1) == nbytes


def test_what_is_not_used_is_listed_and_nothing_else(harness: Config) -> None:
    assert sorted(harness.ignored_keys) == [
        "conversation.max_conversations",
        "eviction.max_recursion_depth",
        "gpu_backend.memory_fraction",
        "prefix_cache.min_prefix_length",
        "qos_profiles.interactive.priority",
        "qos_profiles.interactive.target_latency_p999_ms",
        "rag.max_chunk_bytes",
        "saturation_detection.queue_depth_threshold",
        "validation_limits.max_users",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("decode: {batchsize: 3}\n", "c.yaml:1: decode.batchsize: unknown key; did you mean batch_size?"),
        ("decode:\n  batch_size: 0\n", "c.yaml:2: decode.batch_size 0: out of range; give 1 to 1,000,000"),
        ("user_template: {}\n", "c.yaml:1: user_template: unknown key; did you mean user_templates?"),
        (
            "user_templates:\n  chatbot:\n    context_range: [5]\n",
            "c.yaml:3: user_templates.chatbot.context_range: missing; give it a value",
        ),
        (
            "qos_distribution: {interactive_probability: 0.7}\n",
            "c.yaml:1: qos_distribution: responsive_threshold 0.5 lies below interactive_probability 0.7; "
            "give the sum of both shares as responsive_threshold",
        ),
        (
            "qos_distribution: {interactive_probability: 7}\n",
            "c.yaml:1: qos_distribution.interactive_probability 7: not a share; give 0 to 1",
        ),
        (
            "model_configs:\n  m: {num_layers: 2, kv_heads: 4}\n",
            "c.yaml:2: model_configs.m: attention gqa needs head_dim; give it as a positive number",
        ),
        (
            "generation_timing: {fast: 0.005}\n",
            "c.yaml:1: generation_timing.fast 0.005: the time of a mode is fixed; "
            "use --generation-mode deterministic with --decode-ms-per-token",
        ),
        ("decode: 5\n", "c.yaml:1: decode: has no keys below it; indent them under it"),
        ("decode: [5]\n", "c.yaml:1: decode: give names with settings, not a list"),
        (
            "personas: {}\nuser_templates: {}\n",
            "c.yaml:2: user_templates: says the same as personas; keep one of them",
        ),
    ],
)
def test_a_wrong_key_or_value_is_named_as_the_file_writes_it(tmp_path: Path, text: str, line: str) -> None:
    assert refused(tmp_path, text) == line
