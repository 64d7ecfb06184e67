"""Model architectures and the bytes of KV cache that one token takes in each of them."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from kvspill.errors import UsageError

Attention = Literal["mha", "gqa", "mla"]

DTYPE_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "float32": 4,
        "fp32": 4,
        "float16": 2,
        "fp16": 2,
        "bfloat16": 2,
        "bf16": 2,
        "fp8": 1,
        "float8": 1,
        "fp8_e4m3": 1,
        "fp8_e5m2": 1,
        "int8": 1,
        "uint8": 1,
    }
)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What of an architecture decides the size of its KV cache."""

    name: str
    layers: int
    attention: Attention = "gqa"
    kv_heads: int = 0
    head_dim: int = 0
    lora_rank: int = 0
    """MLA only: width of the latent vector that stands for K and V together."""
    rope_dim: int = 0
    """MLA only: width of the rotary key that is cached beside the latent vector."""
    dtype: str = "float16"
    title: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise UsageError(
                f"model {self.name}: dtype {self.dtype}: unknown; choose {', '.join(sorted(DTYPE_BYTES))}"
            )
        needed = ("lora_rank", "rope_dim") if self.attention == "mla" else ("kv_heads", "head_dim")
        # An MLA model without a rotary part is thinkable; everything else must be there.
        for name in ("layers", *needed):
            if getattr(self, name) < (0 if name == "rope_dim" else 1):
                raise UsageError(
                    f"model {self.name}: {name} {getattr(self, name)}: attention {self.attention} needs it "
                    "as a positive number"
                )

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    def bytes_per_token(self, tensor_parallel: int = 1) -> int:
        """KV bytes of one token as one rank of a tensor-parallel group stores them."""
        if self.attention == "mla":
            # The latent vector is not split by heads: every rank keeps all of it.
            check_tensor_parallel(self, tensor_parallel)
            return self.layers * (self.lora_rank + self.rope_dim) * self.dtype_bytes
        heads = check_tensor_parallel(self, tensor_parallel)
        return self.layers * 2 * heads * self.head_dim * self.dtype_bytes

    def describe(self) -> str:
        """The architecture in a few words, for tables."""
        if self.attention == "mla":
            return f"{self.layers} layers, MLA {self.lora_rank}+{self.rope_dim}, {self.dtype}"
        kind = self.attention.upper()
        return f"{self.layers} layers, {kind} {self.kv_heads} x {self.head_dim}, {self.dtype}"


def check_tensor_parallel(model: ModelSpec, tensor_parallel: int) -> int:
    """KV heads per rank. More ranks than heads replicate heads; anything uneven is refused."""
    if tensor_parallel < 1:
        raise UsageError(f"--tensor-parallel {tensor_parallel}: must be at least 1; give 1 for no split")
    if model.attention == "mla":
        return 1
    heads = model.kv_heads
    if heads % tensor_parallel == 0:
        return heads // tensor_parallel
    if tensor_parallel % heads == 0:
        return 1
    divisors = [str(tp) for tp in range(1, heads + 1) if heads % tp == 0]
    raise UsageError(
        f"--tensor-parallel {tensor_parallel}: does not divide the {heads} KV heads of {model.name}; "
        f"give one of {', '.join(divisors)} or a multiple of {heads}"
    )


def _built_in(*models: ModelSpec) -> Mapping[str, ModelSpec]:
    return MappingProxyType({model.name: model for model in models})


BUILT_IN_MODELS: Final[Mapping[str, ModelSpec]] = _built_in(
    ModelSpec("tiny-1b", 12, "gqa", 4, 128, title="Tiny 1B"),
    ModelSpec("mistral-7b", 32, "gqa", 8, 128, title="Mistral 7B"),
    ModelSpec("llama2-7b", 32, "mha", 32, 128, title="Llama 2 7B"),
    ModelSpec("llama3.1-8b", 32, "gqa", 8, 128, title="Llama 3.1 8B"),
    ModelSpec("llama3.1-70b-instruct", 80, "gqa", 8, 128, title="Llama 3.1 70B Instruct"),
    ModelSpec("deepseek-v3", 61, "mla", lora_rank=512, rope_dim=64, title="DeepSeek V3"),
    ModelSpec("qwen3-32b", 64, "gqa", 8, 128, title="Qwen3 32B"),
    ModelSpec("gpt-oss-120b", 36, "gqa", 8, 64, title="GPT-OSS 120B"),
    ModelSpec("gpt-oss-20b", 24, "gqa", 8, 64, title="GPT-OSS 20B"),
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
