"""Engine presets: one YAML each, valid, weaker than what is given beside them."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import kvspill
from kvspill.config import Config
from kvspill.config.blocks import ENGINES, engine_preset, engine_settings
from kvspill.config.load import load_config
from kvspill.errors import UsageError
from kvspill.plan.validate.sides import ENGINES as DRIVEN
from kvspill.plugins import find_all

NAMES = ENGINES
FILES = Path(kvspill.__file__).parent / "engines"


def test_every_engine_has_its_file_and_every_file_its_engine() -> None:
    assert sorted(path.stem for path in FILES.glob("*.yaml")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_the_configuration_that_its_file_says(name: Any) -> None:
    config = Config(engine=name)
    settings = Config(**engine_settings(name))
    assert config.io_model == "prefix"
    assert config.model_dump(exclude={"engine"}) == settings.model_dump(exclude={"engine"})


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_which_version_it_reproduces_and_how_that_was_checked(name: str) -> None:
    preset = engine_preset(name)
    assert preset.engine
    assert any(character.isdigit() for character in preset.version) or "proposed" in preset.version
    assert date.fromisoformat(preset.date) >= date(2026, 11, 1)
    driven = name in DRIVEN
    assert preset.checked == ("compared with the engine by `kvspill validate`" if driven else "from reading")


def test_lmcache_with_direct_io_is_an_option_beside_its_preset() -> None:
    config = Config(engine="lmcache", direct="on")
    assert (config.direct, config.io_size, config.load_jobs) == ("on", 32 << 20, "request")


def test_what_is_given_beside_an_engine_wins() -> None:
    assert Config(engine="lmcache").block_tokens == 256
    assert Config(engine="lmcache", block_tokens=64).block_tokens == 64


def test_a_changed_copy_keeps_what_was_given() -> None:
    config = Config(engine="lmcache", block_tokens=64).changed(num_users=3)
    assert (config.block_tokens, config.io_threads) == (64, 4)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="engine"):
        Config(engine="nobody")


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("vllm-fs", "block_tokens", 16),
        ("vllm-fs", "storage_eviction_policy", "none"),
        ("vllm-fs", "layout", "tree"),
        ("vllm-slot", "layout", "slots"),
        ("vllm-slot", "io_threads", 1),
        ("vllm-slot", "write_threads", 1),
        ("llm-d", "write_max_wait", 30),
        ("llm-d", "io_threads", 64),
        ("llm-d", "direct", "off"),
        ("llm-d", "load_jobs", "block"),
        ("lmcache", "io_threads", 4),
        ("lmcache", "load_jobs", "request"),
        ("lmcache", "store_jobs", "block"),
        ("lmcache", "page_cache", "keep"),
        ("lmcache", "preallocate", "off"),
        ("lmcache", "rename", "off"),
        ("lmcache-mp", "rename", "on"),
        ("sglang", "io_threads", 1),
        ("vllm-fs", "load_jobs", "request"),
        ("vllm-fs", "direct", "auto"),
        ("vllm-fs", "rename", "on"),
        ("vllm-slot", "preallocate", "off"),
        ("sglang", "prefetch_min_tokens", 256),
        ("mooncake-bucket", "layout", "buckets"),
        ("kvbm", "admit_uses", 2),
        ("flexkv", "storage_usable_share", 0.7),
    ],
)
def test_what_makes_an_engine_itself(name: str, field: str, value: float | int | str) -> None:
    assert getattr(Config(engine=name), field) == value


@pytest.mark.parametrize("name", ["vllm-fs", "vllm-slot", "lmcache", "llm-d", "sglang"])
@pytest.mark.parametrize("model", ["tiny-1b", "llama3.1-8b", "llama3.1-70b-instruct", "own"])
def test_an_engine_that_moves_a_block_by_one_call_does_so_whatever_the_model(name: str, model: str) -> None:
    own = {"own": {"layers": 33, "kv_heads": 7, "head_dim": 101}}
    config = Config(engine=name, model=model, models=own, block_tokens=300)
    block_bytes = config.kv.of(300)
    assert block_bytes <= config.io_size < block_bytes + 4096
    assert Config(engine=name, model=model, models=own, io_size="1MiB").io_size == 1 << 20


def test_a_wrong_model_beside_an_engine_is_refused_as_ever() -> None:
    with pytest.raises(UsageError, match="nobody"):
        Config(engine="lmcache", model="nobody")
    with pytest.raises(ValueError, match="block_tokens"):
        Config(engine="lmcache", block_tokens="many")


def test_a_policy_that_knows_no_chains_is_refused_for_blocks() -> None:
    wanted = {"eviction_policy": ("--eviction-policy", "s3-fifo")}
    blocks = {"io_model": ("--io-model", "prefix")}
    with pytest.raises(UsageError, match=r"s3-fifo: cannot evict .* use fifo, lfu, lru or none"):
        load_config(wanted | blocks, declared=find_all())
    assert load_config(wanted, declared=find_all()).eviction_policy == "s3-fifo"
