"""Reads a model from its published configuration, a config.json as hubs have it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvspill.errors import UsageError
from kvspill.models import ModelSpec, families, recurrent
from kvspill.models.defaults import defaults_of
from kvspill.models.facts import Facts
from kvspill.models.families import Groups

_INNER = ("text_config", "llm_config", "language_config")
"""Where models that also see or hear keep the configuration of their language model."""

_READERS: Final[Mapping[Callable[[Facts], Groups], tuple[str, ...]]] = {
    families.even: (
        *("apertus", "arcee", "bailing_moe", "bailing_moe_v2", "cohere", "deepseek", "ernie4_5"),
        *("ernie4_5_moe", "gemma", "glm", "glm4", "glm4_moe", "gpt_neox", "granite", "granitemoe"),
        *("exaone", "glm4v_text", "glm4v_moe_text", "internlm2", "internlm3", "llama", "mimo", "minimax_m2"),
        *("nemotron", "olmo", "olmo2", "olmoe", "phi"),
        *("qwen3_vl_text", "qwen3_vl_moe_text", "seed_oss", "stablelm"),
    ),
    families.crossed: ("mllama", "mllama_text_model"),
    families.own_layers: ("hunyuan_v1_dense", "hunyuan_v1_moe"),
    families.all_windows: (
        *("mistral", "mixtral", "ministral3", "phi3", "phi4_multimodal", "phi4mm", "phimoe", "starcoder2"),
    ),
    families.switched(families.all_windows): ("qwen3_moe",),
    families.switched(families.late_windows): (
        *("qwen2", "qwen3", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
    ),
    families.switched(families.odd_windows): ("qwen2_moe",),
    families.switched(families.unplaced_windows): ("smollm3",),
    families.late_windows: ("dots1",),
    families.windows(2): ("gpt_oss", "gemma2"),
    families.windows(6): ("gemma3", "gemma3_text"),
    families.windows(4): ("cohere2", "cohere2_moe", "exaone4", "olmo3"),
    families.windows(None): ("ministral", "step3p5", "step3p7", "step3p7_text", "granite_swa"),
    families.gemma4: ("gemma4", "gemma4_text"),
    families.shared(5): ("gemma3n", "gemma3n_text"),
    families.chunks: ("llama4", "llama4_text"),
    families.falcon: ("falcon",),
    families.chatglm: ("chatglm",),
    families.mimo: ("mimo_v2", "mimo_v2_flash"),
    families.mla: ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "minicpm3", "mistral4"),
    families.double_mla: ("longcat_flash",),
    families.indexed_mla: ("deepseek_v32", "glm_moe_dsa"),
    families.indexed: ("minimax_m3", "minimax_m3_text", "minimax_m3_vl", "minimax_m3_vl_text"),
    families.compressed: ("deepseek_v4",),
    recurrent.delta_net: (
        *("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "olmo_hybrid"),
    ),
    recurrent.kimi_linear: ("kimi_linear",),
    recurrent.nemotron_h: ("nemotron_h",),
    recurrent.granite_hybrid: ("granitemoehybrid",),
    recurrent.falcon_h1: ("falcon_h1",),
    recurrent.jamba: ("jamba",),
    recurrent.short_convolutions: ("lfm2", "lfm2_moe"),
    recurrent.lightning: ("minimax", "minimax_m1", "minimax_text_01"),
}
FAMILIES: Final[Mapping[str, Callable[[Facts], Groups]]] = {
    model_type: read for read, model_types in _READERS.items() for model_type in model_types
}
"""How the layers of each known model_type are read."""


def language_part(name: str, config: Mapping[str, Any]) -> Facts:
    """The configuration of the language model in it."""
    for key in _INNER:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            outer = {key: config[key] for key in ("model_type", "max_position_embeddings") if key in config}
            return _with_defaults(name, {**outer, **inner})
    return _with_defaults(name, config)


def _with_defaults(name: str, values: Mapping[str, Any]) -> Facts:
    return Facts(name, {**defaults_of(str(values.get("model_type"))), **values})


def read_model(name: str, label: str, config: Mapping[str, Any], **more: Any) -> ModelSpec:
    """The model of a published configuration; an architecture that is not known is refused, never guessed.

    label: how errors name where it comes from.
    """
    facts = language_part(label, config)
    family = FAMILIES.get(facts.model_type)
    if family is None:
        raise UsageError(
            f"{label}: model_type {facts.model_type[:60] or 'missing'}: not known, and what its layers keep "
            "is never guessed; describe the layers in YAML (docs/models.md)"
        )
    try:
        groups = family(facts)
    except ValueError as error:
        raise facts.fail(str(error)) from None
    longest = facts.get("max_position_embeddings") or facts.get("seq_length")
    max_tokens = longest if isinstance(longest, int) and longest > 0 else None
    layers = facts.number("num_hidden_layers", "num_layers", default=sum(group.layers for group in groups))
    return ModelSpec(name, layers, tuple(groups), max_tokens, **more)
