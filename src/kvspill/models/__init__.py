"""Models: what their layers keep of a context, by name."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from kvspill.errors import UsageError
from kvspill.models.groups import KvSize, LayerGroup, check_tensor_parallel
from kvspill.texts import near

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


def all_models(own: Iterable[ModelSpec] = ()) -> dict[str, ModelSpec]:
    """The models of the catalogue and the user's own; an own model replaces the one of its name."""
    from kvspill.models.catalogue import catalogue

    return {**catalogue(), **{model.name: model for model in own}}


def find_model(name: str, own: Iterable[ModelSpec] = ()) -> ModelSpec:
    """The model of that name, or a UsageError that names the near ones."""
    known = all_models(own)
    if name in known:
        return known[name]
    found = near(name, known, 2)
    hint = f"did you mean {' or '.join(found)}? " if found else ""
    shown = name if name.isprintable() and len(name) <= 60 else ascii(name[:60])
    raise UsageError(f"--model {shown}: unknown model; {hint}`kvspill models` lists them all")
