"""Properties of the configuration under values that nobody would choose."""

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.config import Config
from kvspill.config.load import flag_fields, load_config, to_yaml
from kvspill.errors import UsageError

CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "num_users": st.integers(1, 1_000_000),
    "duration": st.floats(0.5, 604_800),
    "max_requests": st.none() | st.integers(1, 10**9),
    "arrival": st.sampled_from(["open", "closed"]),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "model": st.sampled_from(["tiny-1b", "llama2-7b", "deepseek-v3", "mine"]),
    "tensor_parallel": st.sampled_from([1, 2, 4]),
    "workload_preset": st.sampled_from(["2025-11", "2026-02"]),
    "generation_mode": st.sampled_from(["none", "fast", "realistic", "deterministic"]),
    "gpu_mem_gb": st.none() | st.floats(0, 1000),
    "cpu_mem_gb": st.floats(0, 1000),
    "storage_capacity_gb": st.none() | st.floats(64, 1e6),
    "cache_dir": st.none()
    | st.lists(st.text("abc/~: é'\"#", min_size=1), min_size=1, max_size=3, unique=True),
    "io_size": st.integers(1, 1024).map(lambda blocks: blocks * 4096),
    "direct": st.sampled_from(["auto", "on", "off"]),
    "verify": st.sampled_from(["off", "stamp", "full"]),
    "storage_backend": st.sampled_from(["files", "null", "modelled"]),
    "output": st.none() | st.text("ab.:{}[]# é\n\t-", min_size=1),
    "quiet": st.booleans(),
    "personas": st.just({"coding": {"weight": 3, "think": [0.5, 0.5]}}),
    "qos": st.just({"interactive": {"p95_ms": 1}}),
}
MINE = {"mine": {"layers": 3, "attention": "mha", "kv_heads": 4, "head_dim": 64, "dtype": "fp8"}}
GARBAGE = st.one_of(
    st.text(max_size=30),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.lists(st.integers() | st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
    st.sampled_from(
        ["0", "-1", "nan", "inf", "1e400", "9" * 5000, "\0", "", " ", "4MiB", "on", "none", "\ud800"]
    ),
)


def usable(config: dict[str, Any]) -> bool:
    paths = [*(config.get("cache_dir") or []), config.get("output") or "x"]
    return all(path.strip() for path in paths)


@settings(deadline=None)
@given(st.fixed_dictionaries({}, optional=CHOICES).filter(usable))
def test_a_configuration_survives_the_way_through_yaml(fields: dict[str, Any]) -> None:
    config = Config(models=MINE, **fields)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "c.yaml"
        path.write_text(to_yaml(config))
        again = load_config({}, {}, str(path))
    assert again.model_copy(update={"sources": {}}) == config


def answer(**given: Any) -> str:
    """The line that refuses a configuration, or "accepted". Anything but a UsageError is a failure."""
    try:
        load_config(**given)
    except UsageError as error:
        return str(error)
    return "accepted"


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(sorted(flag_fields())), GARBAGE, min_size=1, max_size=3))
def test_garbage_in_flags_is_accepted_or_refused_with_one_line(values: dict[str, Any]) -> None:
    line = answer(flags={name: (f"--{name}", value) for name, value in values.items()})
    assert line.strip()
    assert "\n" not in line


OWN_KEYS = ["qos", "interactive", "share", "personas", "coding", "context", "models", "prefix", "prompts"]
HARNESS_KEYS = ["user_templates", "chatbot", "context_range", "model_configs", "num_layers", "decode"]
KEYS = st.sampled_from([*OWN_KEYS, *HARNESS_KEYS])


@settings(deadline=None, max_examples=300)
@given(st.recursive(GARBAGE, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8))
def test_garbage_in_a_file_is_accepted_or_refused_with_one_line(content: object) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "c.yaml"
        path.write_text(yaml.safe_dump(content), errors="replace")
        line = answer(config_file=str(path))
    assert line.strip()
    assert "\n" not in line
