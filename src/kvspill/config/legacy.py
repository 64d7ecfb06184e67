"""Understanding a YAML file with the keys of the MLPerf harness's config.yaml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kvspill.config.fields import KeyPath
from kvspill.config.groups import PERSONA_PRESETS, Qos, Rag
from kvspill.config.messages import no_mapping, unknown_key
from kvspill.errors import UsageError
from kvspill.models import ModelSpec, all_models

if TYPE_CHECKING:
    from kvspill.config.yaml_text import YamlFile

_MODEL_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "name": "title",
        "num_layers": "layers",
        "kv_heads": "kv_heads",
        "kv_dim_per_head": "head_dim",
        "attention_type": "attention",
        "kv_lora_rank": "lora_rank",
        "qk_rope_head_dim": "rope_dim",
        "dtype": "dtype",
    }
)
_ROPE_DIM = 64
"""Of the latent vectors of MLA, what all published models keep for the rotary key."""
_PERSONA_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {"context_range": "context", "generation_range": "generate", "think_time_range": "think"}
)
_TARGETS: Final[Mapping[str, str]] = MappingProxyType(
    {"target_latency_p95_ms": "p95_ms", "target_latency_p99_ms": "p99_ms"}
)

SECTIONS: Final[Mapping[str, tuple[str, ...] | None]] = MappingProxyType(
    {
        "model_configs": None,
        "user_templates": None,
        "qos_profiles": None,
        "generation_timing": ("none", "fast", "realistic"),
        "qos_distribution": ("interactive_probability", "responsive_threshold"),
        "eviction": (
            "max_recursion_depth",
            "target_usage_ratio",
            "large_entry_limit_ratio",
            "max_evictions_hard_cap",
            "max_evictions_min",
        ),
        "gpu_backend": ("memory_fraction", "max_eviction_attempts", "free_memory_threshold"),
        "prefix_cache": ("min_prefix_length", "max_prefix_entries", "system_prompt_hit_probability"),
        "rag": (
            "chunk_size_tokens",
            "top_k_chunks",
            "max_chunk_bytes",
            "request_probability",
            "retrieval_distribution",
            "max_documents",
            "large_model_doc_tokens_min",
            "large_model_doc_tokens_max",
            "small_model_doc_tokens_min",
            "small_model_doc_tokens_max",
        ),
        "conversation": ("max_conversations", "max_turns_per_conv", "end_conversation_probability"),
        "autoscaler": (
            "min_users",
            "max_users",
            "scale_up_factor",
            "scale_down_factor",
            "consecutive_samples_required",
        ),
        "decode": ("batch_size",),
        "saturation_detection": (
            "read_latency_p95_threshold_ms",
            "write_latency_p95_threshold_ms",
            "queue_depth_threshold",
            "history_window_size",
        ),
        "validation_limits": (
            "max_users",
            "max_duration_seconds",
            "max_gpu_memory_gb",
            "max_cpu_memory_gb",
        ),
    }
)
"""The sections of such a file and the keys in each; None where the keys are names."""

_PLAIN: Final[Mapping[KeyPath, KeyPath]] = MappingProxyType(
    {
        ("conversation", "max_turns_per_conv"): ("max_turns",),
        ("conversation", "end_conversation_probability"): ("conversation_end_probability",),
        ("decode", "batch_size"): ("decode_batch_size",),
        ("autoscaler", "min_users"): ("min_users",),
        ("autoscaler", "max_users"): ("max_users",),
        ("autoscaler", "scale_up_factor"): ("scale_up_factor",),
        ("autoscaler", "scale_down_factor"): ("scale_down_factor",),
        ("prefix_cache", "system_prompt_hit_probability"): ("prefix", "probability"),
    }
)
_RAG_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "chunk_size_tokens": "chunk_tokens",
        "top_k_chunks": "top_k",
        "request_probability": "probability",
        "retrieval_distribution": "distribution",
    }
)
_RAG_RANGES: Final[Mapping[str, str]] = MappingProxyType(
    {"small_model_doc_tokens": "document_tokens", "large_model_doc_tokens": "large_model_document_tokens"}
)
_SAME_HERE: Final[Mapping[KeyPath, float]] = MappingProxyType(
    {
        ("eviction", "target_usage_ratio"): 0.8,
        ("generation_timing", "none"): 0.0,
        ("generation_timing", "fast"): 0.002,
        ("generation_timing", "realistic"): 0.03,
    }
)
"""Keys whose value is fixed here; that value itself needs no mention."""


@dataclass(slots=True)
class Translation:
    """The file in our own keys, which keys were left unused, and which old key each new one came from."""

    data: dict[str, Any]
    ignored: list[str] = field(default_factory=list)
    origins: dict[KeyPath, KeyPath] = field(default_factory=dict)

    def put(self, new: KeyPath, value: Any, old: KeyPath) -> None:
        target = self.data
        for part in new[:-1]:
            target = target.setdefault(part, {})
        target[new[-1]] = value
        self.origins[new] = old


def translate(file: "YamlFile") -> Translation:
    """Replace the harness's sections by our own fields; what has no counterpart is listed, never dropped."""
    result = Translation({key: value for key, value in file.data.items() if key not in SECTIONS})
    for section, names in SECTIONS.items():
        if section not in file.data:
            continue
        values = file.data[section]
        if values is None:
            continue
        need_mapping(file, (section,), values)
        special = _SPECIAL.get(section)
        if special is not None:
            special(file, values, result)
            continue
        for key, value in values.items():
            path = (section, str(key))
            check_key(file, path, names or ())
            if path in _PLAIN:
                result.put(_PLAIN[path], value, path)
            elif section == "generation_timing" and _SAME_HERE[path] != value:
                raise UsageError(
                    f"{file.where(path)}: {shown_path(path)} {value!r}: the time of a mode is fixed; "
                    "use --generation-mode deterministic with --decode-ms-per-token"
                )
            elif _SAME_HERE.get(path) != value:
                result.ignored.append(".".join(path))
    return result


def check_key(file: "YamlFile", path: KeyPath, known: tuple[str, ...]) -> None:
    """Refuse a key that is not known at its place, with the near one."""
    if path[-1] in known:
        return
    raise UsageError(f"{file.where(path)}: {shown_path(path)}: {unknown_key(path[-1], known)}")


def shown_path(path: KeyPath) -> str:
    text = ".".join(path)
    return text if text.isprintable() and len(text) <= 100 else ascii(text[:100])


def need_mapping(file: "YamlFile", path: KeyPath, value: object) -> None:
    """Refuse a key that should have keys below it and has none."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{file.where(path)}: {shown_path(path)}: {no_mapping(value)}")


def _clash(file: "YamlFile", old: str, new: str) -> None:
    if new in file.data:
        raise UsageError(f"{file.where((old,))}: {old}: says the same as {new}; keep one of them")


def _models(file: "YamlFile", values: Mapping[Any, Any], result: Translation) -> None:
    _clash(file, "model_configs", "models")
    known = (*_MODEL_KEYS, "hidden_dim", "num_heads")
    for name, model in values.items():
        path = ("model_configs", str(name))
        need_mapping(file, path, model)
        for key in model:
            check_key(file, (*path, str(key)), known)
        built_in = all_models().get(str(name))
        given: dict[str, Any] = {}
        if built_in is not None:
            given = _as_own(built_in)
        hidden, heads = model.get("hidden_dim"), model.get("num_heads")
        if isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
            given["head_dim"] = hidden // heads
        result.put(("models", str(name)), given, path)
        for old, new in _MODEL_KEYS.items():
            # The harness writes 0 for "not overridden" and "not MLA".
            if old in model and not (old == "kv_dim_per_head" and model[old] == 0):
                result.put(("models", str(name), new), model[old], (*path, old))
        if model.get("attention_type") == "mla":
            given.pop("kv_heads", None)
            given.pop("head_dim", None)


def _as_own(model: ModelSpec) -> dict[str, Any]:
    """What the keys of one's own models say of a built-in one; nothing where its layers differ."""
    group = model.groups[0]
    if len(model.groups) > 1 or group.kind not in ("full", "mla"):
        return {}
    given = {"title": model.title, "layers": model.layers, "dtype": group.dtype}
    if group.kind == "mla":
        latent = {"lora_rank": group.width - _ROPE_DIM, "rope_dim": _ROPE_DIM}
        return {**given, "attention": "mla", **latent}
    return {**given, "attention": "gqa", "kv_heads": group.heads, "head_dim": group.width // 2}


def _personas(file: "YamlFile", values: Mapping[Any, Any], result: Translation) -> None:
    _clash(file, "user_templates", "personas")
    for name, persona in values.items():
        path = ("user_templates", str(name))
        check_key(file, path, tuple(PERSONA_PRESETS["2025-11"]))
        need_mapping(file, path, persona)
        for key, value in persona.items():
            check_key(file, (*path, str(key)), tuple(_PERSONA_KEYS))
            result.put(("personas", str(name), _PERSONA_KEYS[str(key)]), value, (*path, str(key)))


def _targets(file: "YamlFile", values: Mapping[Any, Any], result: Translation) -> None:
    _clash(file, "qos_profiles", "qos")
    unused = ("target_latency_p999_ms", "target_latency_p9999_ms", "priority")
    for name, profile in values.items():
        path = ("qos_profiles", str(name))
        check_key(file, path, tuple(Qos.model_fields))
        need_mapping(file, path, profile)
        for key, value in profile.items():
            old = (*path, str(key))
            check_key(file, old, (*_TARGETS, *unused))
            if key in _TARGETS:
                result.put(("qos", str(name), _TARGETS[str(key)]), value, old)
            else:
                result.ignored.append(".".join(old))


def _shares(file: "YamlFile", values: Mapping[Any, Any], result: Translation) -> None:
    _clash(file, "qos_distribution", "qos")
    known = SECTIONS["qos_distribution"] or ()
    bounds = dict(zip(known, (0.15, 0.5), strict=True))
    for key, value in values.items():
        path = ("qos_distribution", str(key))
        check_key(file, path, known)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"{file.where(path)}: {shown_path(path)} {value!r}: not a share; give 0 to 1")
        bounds[str(key)] = float(value)
    first, second = bounds.values()
    if first > second:
        raise UsageError(
            f"{file.where(('qos_distribution',))}: qos_distribution: responsive_threshold {second:g} lies "
            f"below interactive_probability {first:g}; give the sum of both shares as responsive_threshold"
        )
    old = ("qos_distribution",)
    shares = {"interactive": first, "responsive": second - first, "batch": 1 - second}
    for name, share in shares.items():
        result.put(("qos", name, "share"), share, old)


def _rag(file: "YamlFile", values: Mapping[Any, Any], result: Translation) -> None:
    """The section has our name too: our own keys pass, the harness's are replaced."""
    old_keys = SECTIONS["rag"] or ()
    defaults = Rag().model_dump()
    for key, value in values.items():
        path = ("rag", str(key))
        check_key(file, path, (*Rag.model_fields, *old_keys))
        stem, _, end = str(key).rpartition("_")
        if stem in _RAG_RANGES:
            name = _RAG_RANGES[stem]
            bounds = result.data.setdefault("rag", {}).setdefault(name, list(defaults[name]))
            bounds[end == "max"] = value
            result.origins[("rag", name)] = path
        elif key in _RAG_KEYS:
            value = "zipf" if value == "zipfian" else value
            result.put(("rag", _RAG_KEYS[str(key)]), value, path)
        elif key in old_keys:
            result.ignored.append(".".join(path))
        else:
            result.put(path, value, path)


_SPECIAL: Final[Mapping[str, Callable[["YamlFile", Mapping[Any, Any], Translation], None]]] = (
    MappingProxyType(
        {
            "model_configs": _models,
            "user_templates": _personas,
            "qos_profiles": _targets,
            "qos_distribution": _shares,
            "rag": _rag,
        }
    )
)
