"""A published configuration is read as it stands, and refused where something is missing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kvspill.errors import UsageError
from kvspill.models import all_models, find_model
from kvspill.models.catalogue import catalogue
from kvspill.models.hub import FAMILIES, read_model

CATALOGUE = Path(__file__).parents[3] / "src/kvspill/models/catalogue.yaml"
ENTRIES: dict[str, Any] = yaml.safe_load(CATALOGUE.read_text())
LINEAR = {
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def read(**config: Any) -> Any:
    return read_model("m", "config.json", config).kv()


def test_the_catalogue_has_at_least_sixty_models_of_all_kinds() -> None:
    kinds = {group.kind for model in catalogue().values() for group in model.groups}
    assert len(catalogue()) >= 60
    assert kinds == {"full", "window", "mla", "indexer", "compressed", "state"}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_model_of_the_catalogue_names_its_source_and_the_day(name: str) -> None:
    entry = ENTRIES[name]
    assert entry["title"]
    assert entry["source"]
    assert entry["read"].year >= 2025
    assert find_model(name).kv().of(8192) > 0


def test_a_listed_model_is_read_by_the_same_reader_as_a_file() -> None:
    for name, entry in ENTRIES.items():
        assert read_model(name, name, entry["config"]).groups == all_models()[name].groups


def test_layers_may_be_listed_one_by_one_or_counted() -> None:
    common = {"model_type": "gpt_oss", "num_hidden_layers": 4, "num_key_value_heads": 8, "head_dim": 64}
    listed = read(**common, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 2)
    counted = read(**common, sliding_window=128, layer_types={"sliding_attention": 2, "full_attention": 2})
    assert listed == counted == read(**common, sliding_window=128)
    assert listed.of(1000) == (1000 + 128) * 2 * 2048


def test_the_language_model_of_one_that_sees_is_what_counts() -> None:
    inner = {"model_type": "llama", "num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 64}
    assert read(model_type="llava", num_hidden_layers=99, text_config=inner).of(1) == 512


def test_heads_that_are_not_grouped_are_all_kept() -> None:
    """As these files have it: without num_key_value_heads every attention head has its own K and V."""
    kv = read(model_type="llama", num_hidden_layers=1, num_attention_heads=8, hidden_size=512)
    assert kv.of(1) == 8 * 64 * 2 * 2


def test_a_window_as_long_as_the_longest_context_keeps_everything() -> None:
    common = {"model_type": "phi3", "num_hidden_layers": 2, "num_key_value_heads": 8, "head_dim": 128}
    whole = read(**common, sliding_window=262_144, max_position_embeddings=131_072)
    assert not whole.has_end
    assert read(**common, sliding_window=2047, max_position_embeddings=4096).has_end


def test_a_delta_net_keeps_the_last_inputs_of_its_convolution_and_a_matrix_per_head() -> None:
    kv = read(model_type="qwen3_next", num_hidden_layers=4, num_key_value_heads=2, head_dim=256, **LINEAR)
    conv = 3 * 3 * (2 * 16 * 128 + 32 * 128) * 2
    recurrent = 3 * 32 * 128 * 128 * 4
    assert kv.end(1) == kv.end(100_000) == conv + recurrent
    assert kv.bytes_per_token == 2 * 2 * 256 * 2


def test_layers_that_use_the_kv_of_others_keep_none() -> None:
    common = {"model_type": "gemma4_text", "num_hidden_layers": 12, "num_key_value_heads": 1, "head_dim": 256}
    own = read(**common, sliding_window=512, global_head_dim=512)
    shared = read(**common, sliding_window=512, global_head_dim=512, num_kv_shared_layers=6)
    assert own.of(100) == 2 * shared.of(100)


def test_states_keep_their_type_whatever_the_kv_is_stored_in() -> None:
    model = find_model("qwen3.5-27b")
    assert model.stored_as("fp8").kv().bytes_per_token == model.kv().bytes_per_token / 2
    assert model.stored_as("fp8").kv().end(1) == model.kv().end(1)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "model_type missing: not known"),
        (
            {"model_type": "brand_new"},
            "brand_new: not known, and what its layers keep is never guessed",
        ),
        ({"model_type": "llama"}, "num_hidden_layers is missing"),
        ({"model_type": "llama", "num_hidden_layers": 2}, "num_key_value_heads is missing"),
        (
            {"model_type": "llama", "num_hidden_layers": "two"},
            "layers 'two' is not a whole number",
        ),
        ({"model_type": "llama", "num_hidden_layers": -2}, "is not a whole number from 1 on"),
        ({"model_type": "deepseek_v3", "num_hidden_layers": 2}, "kv_lora_rank is missing"),
        ({"model_type": "kimi_linear", "num_hidden_layers": 2}, "linear_attn_config is missing"),
        (
            {"model_type": "deepseek_v4", "num_hidden_layers": 2, "head_dim": 4},
            "compress_ratios does not",
        ),
        (
            {
                "model_type": "gpt_oss",
                "num_hidden_layers": 2,
                "num_key_value_heads": 1,
                "head_dim": 2,
                "layer_types": ["full_attention", "telepathy"],
            },
            "layers of type telepathy are not known",
        ),
        (
            {
                "model_type": "gpt_oss",
                "num_hidden_layers": 2,
                "num_key_value_heads": 1,
                "head_dim": 2,
                "layer_types": ["full_attention"],
            },
            "layer_types does not have the 2 layers",
        ),
    ],
)
def test_what_is_missing_is_named(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_model("m", "config.json", config)
    assert str(caught.value).startswith("config.json: model_type")
    assert reason in str(caught.value)


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_no_family_takes_a_file_without_facts_for_a_model(model_type: str) -> None:
    with pytest.raises(UsageError, match=r"missing|does not have|do not say"):
        read_model("m", "config.json", {"model_type": model_type})


GEMMA_3_12B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 3840,
        "num_attention_heads": 16,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "sliding_window": 1024,
    },
}
GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}


@pytest.mark.parametrize(("name", "config"), [("gemma-3-12b", GEMMA_3_12B), ("gemma-3-4b", GEMMA_3_4B)])
def test_a_key_that_a_file_leaves_out_is_the_default_of_its_class(name: str, config: dict[str, Any]) -> None:
    assert read(**config) == find_model(name).kv()


COMMON = {"num_hidden_layers": 8, "num_key_value_heads": 2, "num_attention_heads": 8, "head_dim": 64}
LAYER = 2 * 64 * 2 * 2


@pytest.mark.parametrize(
    ("more", "full"),
    [
        ({"model_type": "qwen3_moe", "use_sliding_window": True}, 0),
        ({"model_type": "qwen3_moe", "use_sliding_window": False}, 8),
        ({"model_type": "qwen2_moe", "use_sliding_window": True, "max_window_layers": 5}, 5),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0}, 0),
        ({"model_type": "qwen2_5_vl", "use_sliding_window": True, "max_window_layers": 6}, 6),
        ({"model_type": "smollm3", "use_sliding_window": True, "no_rope_layer_interval": 2}, 4),
        ({"model_type": "llama4_text", "no_rope_layer_interval": 2}, 4),
        ({"model_type": "llama4_text", "no_rope_layers": [1, 1, 1, 1, 1, 1, 0, 0]}, 2),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, 2),
        ({"model_type": "exaone4", "sliding_window": None}, 8),
        ({"model_type": "gemma4_text", "layer_types": ["sliding_attention"] * 8, "global_head_dim": 64}, 1),
        ({"model_type": "mistral", "sliding_window": None}, 8),
    ],
)
def test_layers_have_windows_where_the_class_of_the_family_gives_them(
    more: dict[str, Any], full: int
) -> None:
    config = {**COMMON, "sliding_window": 512, "attention_chunk_size": 512, **more}
    assert read(**config).bytes_per_token == full * LAYER


def test_a_falcon_has_one_head_of_keys_and_an_old_glm_its_groups() -> None:
    falcon = {"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544}
    assert read(**falcon, multi_query=True).of(1) == 32 * 2 * 64 * 2
    assert read(**falcon, new_decoder_architecture=True, num_kv_heads=8).of(1) == 8 * 32 * 2 * 64 * 2
    groups = {"multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128}
    assert read(model_type="chatglm", num_layers=40, **groups).of(1) == 40 * 2 * 2 * 128 * 2


def test_layers_that_attend_to_images_keep_nothing_of_the_text() -> None:
    """Llama 3.2 11B Vision: eight of 40 layers, so that its text takes what that of Llama 3.1 8B does."""
    inner = {
        "model_type": "mllama_text_model",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
    }
    assert read(model_type="mllama", text_config=inner).of(1) == find_model("llama3.1-8b").kv().of(1)


def test_short_convolutions_and_mamba_layers_keep_their_last_inputs() -> None:
    """LFM2 keeps two inputs of three; Jamba has one layer of attention in eight, and a state per channel."""
    types = ["conv", "conv", "full_attention", "conv"]
    lfm = {"model_type": "lfm2", "num_hidden_layers": 4, "num_attention_heads": 32, "hidden_size": 2048}
    kv = read(**lfm, num_key_value_heads=8, conv_L_cache=3, layer_types=types)
    assert kv.end(1000) == 3 * 2 * 2048 * 2
    jamba = {"model_type": "jamba", "num_hidden_layers": 8, "num_attention_heads": 32, "hidden_size": 4096}
    mamba = {"mamba_expand": 2, "mamba_d_conv": 4, "mamba_d_state": 16}
    kv = read(**jamba, **mamba, num_key_value_heads=8, attn_layer_period=8, attn_layer_offset=4)
    assert kv.bytes_per_token == 2 * 8 * 128 * 2
    assert kv.end(1000) == 7 * (3 * 8192 * 2 + 8192 * 16 * 4)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "llama", "head_dim": None, "hidden_size": 4100}, "4100 is no multiple of 8 heads"),
        ({"model_type": "hunyuan_v1_moe", "use_cla": True}, "which layers share their KV is not known"),
        (
            {"model_type": "gpt_oss", "layer_types": ["full_attention"] * 9},
            "layer_types does not have the 8 layers of the model but 9",
        ),
        ({"model_type": "gpt_oss", "layer_types": {"full_attention": 7}}, "the 8 layers of the model but 7"),
        (
            {"model_type": "qwen3_next", "layer_types": ["sliding_attention"] * 8, **LINEAR},
            "layers of type sliding_attention",
        ),
        (
            {"model_type": "gemma4_text", "layer_types": ["linear_attention"] * 8},
            "layers of type linear_attention",
        ),
        (
            {"model_type": "mimo_v2", "hybrid_layer_pattern": [0, 1, 1, 1]},
            "pattern does not have the 8 layers of the model but 4",
        ),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M*"},
            "has 2 and num_hidden_layers says 8",
        ),
        (
            {
                "model_type": "glm_moe_dsa",
                "kv_lora_rank": 4,
                "qk_rope_head_dim": 4,
                "index_head_dim": 4,
                "indexer_types": ["full"] * 2,
            },
            "indexer_types does not have the 8 layers",
        ),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLG"}, "what the last layer is"),
        ({"model_type": "mllama_text_model"}, "cross_attention_layers is missing"),
        ({"model_type": "mllama_text_model", "cross_attention_layers": [3, 8]}, "none of the 8"),
    ],
)
def test_what_does_not_fit_its_layers_is_refused(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(**{**COMMON, "sliding_window": 512, **config})
