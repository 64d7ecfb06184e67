"""The nested parts of the configuration: personas, service classes, shared prompts, own models."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from kvspill.config.fields import Group
from kvspill.models import Attention, ModelSpec, even_model
from kvspill.models.groups import Kind, LayerGroup, check_dtype
from kvspill.records import QoS

MAX_TOKENS: Final = 10_000_000

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]
Share = Annotated[float, Field(ge=0, le=1)]


def _check_range(name: str, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if low > high:
        raise ValueError(f"{name} [{low:g}, {high:g}] runs backwards; put the smaller number first")


SMALLEST_SHARE: Final = 0.25
"""A request draws its tokens between this share of its user's value and the value."""
_MEAN_SHARE = (1 + SMALLEST_SHARE) / 2


class Persona(Group):
    """A kind of user. Each user draws its own values from the ranges once."""

    context: tuple[Tokens, Tokens]
    """Tokens of context, smallest and largest."""
    generate: tuple[Tokens, Tokens]
    """Tokens generated per request, smallest and largest."""
    think: tuple[Seconds, Seconds]
    """Seconds between requests, smallest and largest."""
    weight: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    """Share of the users relative to the other personas' weights."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_range("context", self.context)
        _check_range("generate", self.generate)
        _check_range("think", self.think)
        return self

    @property
    def mean_context_tokens(self) -> float:
        """Context tokens of a mean request of a mean user."""
        return _MEAN_SHARE * sum(self.context) / 2

    @property
    def mean_generated_tokens(self) -> float:
        return _MEAN_SHARE * sum(self.generate) / 2


def _persona(
    context: tuple[int, int], generate: tuple[int, int], think: tuple[float, float]
) -> dict[str, Any]:
    return {"context": list(context), "generate": list(generate), "think": list(think), "weight": 1.0}


PERSONA_PRESETS: Final[Mapping[str, Mapping[str, dict[str, Any]]]] = MappingProxyType(
    {
        "2025-11": MappingProxyType(
            {
                "chatbot": _persona((256, 1024), (50, 150), (0.1, 0.5)),
                "coding": _persona((1024, 4096), (100, 500), (0.2, 1.0)),
                "document": _persona((2048, 8192), (200, 800), (0.3, 1.5)),
            }
        ),
        "2026-02": MappingProxyType(
            {
                "chatbot": _persona((512, 4096), (50, 200), (0.1, 0.5)),
                "coding": _persona((4096, 25000), (100, 500), (0.2, 1.0)),
                "document": _persona((4096, 16384), (200, 800), (0.3, 1.5)),
            }
        ),
    }
)


class QosClass(Group):
    """One service class: its share of the users and its latency targets."""

    share: Share
    p95_ms: Annotated[float, Field(gt=0)]
    p99_ms: Annotated[float, Field(gt=0)]


class Qos(Group):
    """The three service classes; interactive is served first."""

    interactive: QosClass = QosClass(share=0.15, p95_ms=50, p99_ms=100)
    responsive: QosClass = QosClass(share=0.35, p95_ms=100, p99_ms=200)
    batch: QosClass = QosClass(share=0.50, p95_ms=1000, p99_ms=5000)

    def of(self, qos: QoS) -> QosClass:
        """The class by the name that requests have for it."""
        return (self.interactive, self.responsive, self.batch)[qos]

    def within(self, target_ms: float) -> Self:
        """The same users with one p95 target for every class; a p99 is never held to less."""
        classes = {qos.name.lower(): self.of(qos) for qos in QoS}
        changes = {
            name: level.model_copy(update={"p95_ms": target_ms, "p99_ms": max(level.p99_ms, target_ms)})
            for name, level in classes.items()
        }
        return self.model_copy(update=changes)

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        # A file may name single values of a class; the others keep their defaults.
        if not isinstance(data, Mapping):
            return data
        filled = dict(data)
        for name, info in cls.model_fields.items():
            if isinstance(filled.get(name), Mapping):
                filled[name] = {**info.default.model_dump(), **filled[name]}
        return filled

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = self.interactive.share + self.responsive.share + self.batch.share
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the shares of the three classes add up to {total:g}; make them add up to 1")
        return self


class Prompt(Group):
    """A text that many requests begin with. Equal texts share one KV entry."""

    text: Annotated[str, Field(min_length=1)]
    tokens: Tokens
    kind: Literal["system", "common"] = "system"


_PROMPTS: Final = (
    Prompt(
        text="You answer questions for the customers of a bank. Be brief and polite, never ask for a "
        "password or a card number, and hand over to a colleague whenever money is to be moved.",
        tokens=44,
    ),
    Prompt(
        text="You review changes to a large code base. Read the diff first, then the tests. Name each "
        "defect with its file and line, say why it matters, and propose the smallest change that "
        "repairs it. Praise nothing, guess nothing, and keep to the style of the surrounding code.",
        tokens=68,
    ),
    Prompt(
        text="You summarise long documents for people in a hurry. Start with the decision that the "
        "document asks for, then list the facts behind it in order of weight, each with its page. Keep "
        "figures exactly as they are printed, mark whatever contradicts itself, and leave out opinions "
        "that the text does not hold.",
        tokens=76,
    ),
)


class Prefix(Group):
    """Shared prompts: how many requests begin with one, and which there are."""

    probability: Share = 0.2
    prompts: tuple[Prompt, ...] = _PROMPTS

    @model_validator(mode="after")
    def _some_prompt(self) -> Self:
        if self.probability > 0 and not self.prompts:
            raise ValueError("no prompts are left to draw from; name some or set probability to 0")
        return self


class Rag(Group):
    """Retrieval-augmented generation: documents in chunks, and how many of them a request reads."""

    probability: Share = 0.1
    """Share of the requests that retrieve."""
    chunk_tokens: Tokens = 512
    top_k: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Chunks that a request reads, all of one document."""
    distribution: Literal["zipf", "uniform"] = "zipf"
    """How often the chunks of a document are retrieved: the n-th 1/n as often as the first, or alike."""
    document_tokens: tuple[Tokens, Tokens] = (4_000, 12_000)
    """Tokens of a document, smallest and largest."""
    large_model_document_tokens: tuple[Tokens, Tokens] = (1_024, 4_096)
    """The same for models of 80 layers or more, whose KV takes more room."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_range("document_tokens", self.document_tokens)
        _check_range("large_model_document_tokens", self.large_model_document_tokens)
        return self


class ShareGpt(Group):
    """How the texts of recorded conversations become numbers of tokens."""

    max_context_tokens: Tokens = 16_384
    """A longer message counts as this."""
    max_generation_tokens: Tokens = 2_048
    """A longer answer counts as this."""
    token_counter: Literal["auto", "tiktoken", "estimate"] = "auto"
    """auto: tiktoken (cl100k_base) where it is installed, else the estimate; the result says which."""
    chars_per_token_estimate: Annotated[float, Field(gt=0, le=1000)] = 4.0


class OwnGroup(Group):
    """Layers of a user's own model that keep the same of a context."""

    kind: Kind
    layers: Annotated[int, Field(ge=1, le=10_000)]
    width: Annotated[int, Field(ge=1, le=1_000_000_000)]
    """Elements that one head of one layer keeps of a token, K and V together; of a state, all of it."""
    heads: Annotated[int, Field(ge=1, le=100_000)] = 1
    window: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    ratio: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    dtype: str = "float16"
    fixed: bool = False
    """True where --kv-dtype does not change the type."""


class OwnModel(Group):
    """A model that the user defines (YAML key `models`): layers that are all alike, or groups of them."""

    layers: Annotated[int, Field(ge=1, le=10_000)]
    groups: tuple[OwnGroup, ...] = ()
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    source: str = ""
    attention: Attention = "gqa"
    kv_heads: Annotated[int, Field(ge=0, le=100_000)] = 0
    head_dim: Annotated[int, Field(ge=0, le=100_000)] = 0
    lora_rank: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    rope_dim: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    dtype: str = "float16"
    title: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        check_dtype(self.dtype)
        if self.groups:
            for name in ("kv_heads", "head_dim", "lora_rank", "rope_dim"):
                if getattr(self, name):
                    raise ValueError(f"{name} contradicts groups; leave one of them out")
            self._layer_groups()
            return self
        needed = ("lora_rank",) if self.attention == "mla" else ("kv_heads", "head_dim")
        for name in needed:
            if getattr(self, name) < 1:
                raise ValueError(f"attention {self.attention} needs {name}; give it as a positive number")
        for name in ("lora_rank", "rope_dim"):
            if self.attention != "mla" and getattr(self, name):
                raise ValueError(
                    f"{name} belongs to attention mla, not {self.attention}; leave one of them out"
                )
        return self

    def _layer_groups(self) -> tuple[LayerGroup, ...]:
        return tuple(LayerGroup(**group.model_dump()) for group in self.groups)

    def spec(self, name: str) -> ModelSpec:
        if self.groups:
            groups, title = self._layer_groups(), self.title or name
            return ModelSpec(name, self.layers, groups, self.max_tokens, title, self.source)
        return even_model(
            name=name,
            layers=self.layers,
            attention=self.attention,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            lora_rank=self.lora_rank,
            rope_dim=self.rope_dim,
            dtype=self.dtype,
            title=self.title or name,
        )


def merged_personas(preset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The preset's personas with the given ones laid over them, key by key."""
    merged: dict[str, Any] = {
        name: dict(values) for name, values in PERSONA_PRESETS.get(preset, PERSONA_PRESETS["2025-11"]).items()
    }
    for name, persona in given.items():
        own = persona.model_dump() if isinstance(persona, Persona) else persona
        merged[name] = {**merged.get(name, {}), **own} if isinstance(own, Mapping) else own
    return merged
