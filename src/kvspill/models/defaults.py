"""What the configuration classes of families set where a file does not name a key.

Published files leave out what is the default of their class. Read from the classes of the package
transformers (August 2026); a key that its class computes from others, or has no number for, is not here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_HEADS, _WIDTH, _WINDOW, _BEHIND = "num_key_value_heads", "head_dim", "sliding_window", "max_window_layers"

_DEFAULTS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "cohere2": {_WINDOW: 4096},
        "cohere2_moe": {_WIDTH: 128, _WINDOW: 4096},
        "deepseek_v4": {_HEADS: 1, _WIDTH: 512, _WINDOW: 128},
        "dots1": {_HEADS: 32, _WINDOW: 4096, _BEHIND: 62},
        "ernie4_5": {_HEADS: 2, _WIDTH: 128},
        "ernie4_5_moe": {_HEADS: 4},
        "exaone4": {_HEADS: 32, _WINDOW: 4096},
        "falcon_h1": {_HEADS: 8},
        "gemma": {_HEADS: 16, _WIDTH: 256},
        "gemma2": {_HEADS: 4, _WIDTH: 256, _WINDOW: 4096},
        "gemma3_text": {_HEADS: 4, _WIDTH: 256, _WINDOW: 4096},
        "gemma3n_text": {_HEADS: 2, _WIDTH: 256, _WINDOW: 512},
        "gemma4_text": {_HEADS: 4, _WIDTH: 256, _WINDOW: 512},
        "glm": {_HEADS: 2, _WIDTH: 128},
        "glm4": {_HEADS: 2, _WIDTH: 128},
        "glm4_moe": {_HEADS: 8},
        "gpt_oss": {_HEADS: 8, _WIDTH: 64, _WINDOW: 128},
        "granite_swa": {_HEADS: 4, _WINDOW: 128},
        "jamba": {_HEADS: 8},
        "lfm2": {_HEADS: 8},
        "lfm2_moe": {_HEADS: 8},
        "llama4_text": {_HEADS: 8, _WIDTH: 128},
        "mimo_v2_flash": {_HEADS: 4, _WIDTH: 192, _WINDOW: 128},
        "minimax": {_HEADS: 8},
        "minimax_m2": {_HEADS: 8, _WIDTH: 128},
        "minimax_m3_vl_text": {_HEADS: 4, _WIDTH: 128},
        "ministral": {_HEADS: 8, _WINDOW: 4096},
        "ministral3": {_HEADS: 8, _WIDTH: 128},
        "mistral": {_HEADS: 8, _WINDOW: 4096},
        "mixtral": {_HEADS: 8},
        "nemotron_h": {_HEADS: 8},
        "olmo3": {_WINDOW: 4096},
        "phimoe": {_HEADS: 8},
        "qwen2": {_HEADS: 32, _WINDOW: 4096, _BEHIND: 28},
        "qwen2_5_vl_text": {_HEADS: 8, _WINDOW: 4096, _BEHIND: 80},
        "qwen2_moe": {_HEADS: 16, _WINDOW: 4096, _BEHIND: 28},
        "qwen2_vl_text": {_HEADS: 8, _WINDOW: 4096, _BEHIND: 80},
        "qwen3": {_HEADS: 32, _WIDTH: 128, _WINDOW: 4096, _BEHIND: 28},
        "qwen3_5_moe_text": {_HEADS: 2, _WIDTH: 256},
        "qwen3_5_text": {_HEADS: 4, _WIDTH: 256},
        "qwen3_moe": {_HEADS: 4, _WINDOW: 4096},
        "qwen3_next": {_HEADS: 2, _WIDTH: 256},
        "qwen3_vl_moe_text": {_HEADS: 16},
        "qwen3_vl_text": {_HEADS: 32, _WIDTH: 128},
        "seed_oss": {_HEADS: 8, _WIDTH: 128},
        "smollm3": {_HEADS: 4},
        "stablelm": {_HEADS: 32},
        "starcoder2": {_HEADS: 2},
        "step3p5": {_HEADS: 8, _WIDTH: 128},
    }
)


def defaults_of(model_type: str) -> Mapping[str, int]:
    """The defaults of a family; models that also see or hear have those of their language model."""
    return _DEFAULTS.get(model_type) or _DEFAULTS.get(f"{model_type}_text") or {}
