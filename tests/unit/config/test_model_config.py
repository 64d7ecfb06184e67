"""--model-config and --kv-dtype: a model by its published file, and the type in which its KV is stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.result.command import command_of

HYBRID = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 4,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "max_position_embeddings": 4096,
}


@pytest.fixture
def published(tmp_path: Path) -> str:
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(HYBRID))
    return str(path)


def test_a_file_is_a_model_named_like_its_directory(published: str) -> None:
    config = Config(model_config_file=published)
    assert config.model == "my-model"
    assert config.kv.of(1000) == (1000 + 128) * 2 * 2048
    assert config.model_spec.max_tokens == 4096


def test_a_file_is_named_by_the_model_flag_where_one_is_given(published: str) -> None:
    assert Config(model_config_file=published, model="mine").model_spec.name == "mine"


def test_a_configuration_stays_the_same_without_the_file(published: str) -> None:
    config = Config(model_config_file=published)
    Path(published).unlink()
    assert config.changed(seed=1).kv == config.kv
    assert "my-model" in command_of(config, simulated=True)


def test_a_file_that_is_no_configuration_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text, reason in (
        ("{", "broken JSON"),
        ("[1]", "not an object with keys"),
        ('{"model_type": "brand_new"}', "model_type brand_new: not known"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=f"^--model-config {path}: ") as caught:
            Config(model_config_file=str(path))
        assert reason in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        Config(model_config_file=str(tmp_path / "none.json"))


def test_a_file_and_an_own_model_of_the_same_name_contradict_each_other(published: str) -> None:
    own: dict[str, Any] = {"my-model": {"layers": 2, "kv_heads": 1, "head_dim": 64}}
    with pytest.raises(UsageError, match="models has a my-model already; give another --model NAME"):
        Config(model_config_file=published, models=own)


@pytest.mark.parametrize(("dtype", "nbytes"), [("bf16", 131_072), ("fp8", 65_536), ("fp4", 32_768)])
def test_the_kv_takes_the_bytes_of_its_type(dtype: Any, nbytes: int) -> None:
    assert Config(model="llama3.1-8b", kv_dtype=dtype).kv.of(1) == nbytes
    engine = Config(model="llama3.1-8b", kv_dtype=dtype, engine="lmcache")
    assert engine.largest_entry_bytes == nbytes * engine.block_tokens


def own_model(*groups: dict[str, Any], **more: Any) -> Config:
    models: dict[str, Any] = {"mine": {"layers": 5, "groups": list(groups), **more.pop("fields", {})}}
    return Config(model="mine", models=models, **more)


def test_an_own_model_may_have_groups_of_layers() -> None:
    config = own_model(
        {"kind": "full", "layers": 2, "heads": 8, "width": 128},
        {"kind": "window", "layers": 2, "heads": 8, "width": 128, "window": 128},
        {"kind": "state", "layers": 1, "width": 1000, "dtype": "float32", "fixed": True},
    )
    assert config.kv.of(1000) == (1000 + 128) * 2 * 2048 + 4000
    assert config.changed(kv_dtype="fp8").kv.end(1000) == 128 * 2048 + 4000


@pytest.mark.parametrize(
    ("group", "fields"),
    [
        ({"kind": "full", "layers": 1, "width": 1, "window": 5}, {}),
        ({"kind": "full", "layers": 1, "width": 1}, {"kv_heads": 3}),
        ({"kind": "full", "layers": 1, "width": 1, "dtype": "int3"}, {}),
    ],
)
def test_groups_that_cannot_be_are_refused(group: dict[str, Any], fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"window|contradicts groups|unknown"):
        own_model(group, fields=fields)


def test_a_model_without_a_part_that_grows_has_no_blocks() -> None:
    with pytest.raises(UsageError, match="--io-model prefix: no layer of mine keeps every token"):
        own_model({"kind": "state", "layers": 1, "width": 1000}, io_model="prefix")
