"""Models: what their layers keep of a context, by name."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

from kvspill.errors import UsageError
from kvspill.models.groups import KvSize, LayerGroup, check_tensor_parallel

Attention = Literal["mha", "gqa", "mla"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What of an architecture decides the size of its KV cache."""

    name: str
    layers: int
    groups: tuple[LayerGroup, ...]
    max_tokens: int | None = None
    """The longest context that the model's publisher names."""
    title: str = field(default="", compare=False)
    source: str = field(default="", compare=False)
    """Where its configuration is published."""

    def kv(self, tensor_parallel: int = 1) -> KvSize:
        """Bytes of KV as one rank of a tensor-parallel group stores them."""
        check_tensor_parallel(self.name, self.groups, tensor_parallel)
        return KvSize.of_groups(self.groups, tensor_parallel)

    def stored_as(self, dtype: str) -> "ModelSpec":
        """The same model with its KV in that type."""
        return replace(self, groups=tuple(group.stored_as(dtype) for group in self.groups))

    def describe(self) -> str:
        """The architecture in a few words, for tables."""
        dtypes = dict.fromkeys(group.dtype for group in self.groups)
        return f"{' + '.join(group.describe() for group in self.groups)}, {'/'.join(dtypes)}"


def even_model(
    name: str,
    layers: int,
    attention: Attention = "gqa",
    kv_heads: int = 0,
    head_dim: int = 0,
    lora_rank: int = 0,
    rope_dim: int = 0,
    dtype: str = "float16",
    title: str = "",
) -> ModelSpec:
    """A model whose layers are all alike and keep every token."""
    try:
        if attention == "mla":
            # The latent vector is not split by heads: every rank keeps all of it.
            group = LayerGroup("mla", layers, lora_rank and lora_rank + rope_dim, dtype=dtype)
        else:
            group = LayerGroup("full", layers, 2 * head_dim, kv_heads, dtype=dtype)
    except ValueError as error:
        raise UsageError(f"model {name}: {error}") from None
    return ModelSpec(name, layers, (group,), title=title)


def _gpt_oss(name: str, layers: int, title: str) -> ModelSpec:
    """Every other layer keeps a window of 128 tokens."""
    half = layers // 2
    groups = (LayerGroup("full", half, 128, 8), LayerGroup("window", half, 128, 8, window=128))
    return ModelSpec(name, layers, groups, 131_072, title)


def _built_in(*models: ModelSpec) -> Mapping[str, ModelSpec]:
    return MappingProxyType({model.name: model for model in models})


BUILT_IN_MODELS: Final[Mapping[str, ModelSpec]] = _built_in(
    even_model("tiny-1b", 12, "gqa", 4, 128, title="Tiny 1B"),
    even_model("mistral-7b", 32, "gqa", 8, 128, title="Mistral 7B"),
    even_model("llama2-7b", 32, "mha", 32, 128, title="Llama 2 7B"),
    even_model("llama3.1-8b", 32, "gqa", 8, 128, title="Llama 3.1 8B"),
    even_model("llama3.1-70b-instruct", 80, "gqa", 8, 128, title="Llama 3.1 70B Instruct"),
    even_model("deepseek-v3", 61, "mla", lora_rank=512, rope_dim=64, title="DeepSeek V3"),
    even_model("qwen3-32b", 64, "gqa", 8, 128, title="Qwen3 32B"),
    _gpt_oss("gpt-oss-120b", 36, "GPT-OSS 120B"),
    _gpt_oss("gpt-oss-20b", 24, "GPT-OSS 20B"),
)


def all_models(own: Iterable[ModelSpec] = ()) -> dict[str, ModelSpec]:
    """The built-in models and the user's own; an own model replaces the built-in one of its name."""
    return {**BUILT_IN_MODELS, **{model.name: model for model in own}}


def find_model(name: str, own: Iterable[ModelSpec] = ()) -> ModelSpec:
    """The model of that name, or a UsageError that names the near ones."""
    known = all_models(own)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    shown = name if name.isprintable() and len(name) <= 60 else ascii(name[:60])
    raise UsageError(f"--model {shown}: unknown model; {hint}`kvspill models` lists them all")
