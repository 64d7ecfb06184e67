"""Claims about model architectures and the bytes of KV cache they need."""

import pytest

from kvspill.errors import UsageError
from kvspill.models import BUILT_IN_MODELS, ModelSpec, all_models, find_model

KIB = 1024


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("tiny-1b", 24_576),
        ("mistral-7b", 131_072),
        ("llama2-7b", 524_288),
        ("llama3.1-8b", 131_072),
        ("llama3.1-70b-instruct", 327_680),
        ("deepseek-v3", 70_272),
        ("qwen3-32b", 262_144),
        ("gpt-oss-120b", 73_728),
        ("gpt-oss-20b", 49_152),
    ],
)
def test_a_token_takes_exactly_the_published_bytes(name: str, nbytes: int) -> None:
    assert find_model(name).bytes_per_token() == nbytes


def test_tiny_1b_has_twelve_layers() -> None:
    assert BUILT_IN_MODELS["tiny-1b"].layers == 12


@pytest.mark.parametrize(("ranks", "nbytes"), [(1, 327_680), (2, 163_840), (4, 81_920), (8, 40_960)])
def test_tensor_parallel_ranks_share_the_kv_heads(ranks: int, nbytes: int) -> None:
    assert find_model("llama3.1-70b-instruct").bytes_per_token(ranks) == nbytes


def test_more_ranks_than_heads_replicate_a_head_on_each() -> None:
    assert find_model("llama3.1-70b-instruct").bytes_per_token(16) == 40_960


def test_mla_is_replicated_on_every_rank() -> None:
    assert find_model("deepseek-v3").bytes_per_token(8) == find_model("deepseek-v3").bytes_per_token(1)


@pytest.mark.parametrize("ranks", [3, 5, 6, 12])
def test_ranks_that_do_not_divide_the_heads_are_refused(ranks: int) -> None:
    with pytest.raises(UsageError, match=f"--tensor-parallel {ranks}: does not divide the 8 KV heads"):
        find_model("llama3.1-8b").bytes_per_token(ranks)


def test_an_unknown_model_is_answered_with_the_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        find_model("lama3.1-8b")
    assert str(caught.value) == (
        "--model lama3.1-8b: unknown model; did you mean llama3.1-8b or llama2-7b? "
        "`kvspill models` lists them all"
    )


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 2), ("bfloat16", 1), ("fp8", 0.5), ("int8", 0.5)])
def test_the_dtype_scales_the_bytes(dtype: str, factor: float) -> None:
    own = ModelSpec("own", 32, "gqa", 8, 128, dtype=dtype)
    assert own.bytes_per_token() == 131_072 * factor


def test_an_own_model_replaces_the_built_in_one_of_its_name() -> None:
    own = ModelSpec("tiny-1b", 1, "mha", 1, 64)
    assert all_models([own])["tiny-1b"].bytes_per_token() == 256


@pytest.mark.parametrize(
    "fields",
    [
        {"layers": 0, "kv_heads": 8, "head_dim": 128},
        {"layers": 32, "kv_heads": 0, "head_dim": 128},
        {"layers": 32, "attention": "mla", "rope_dim": 64},
        {"layers": 32, "kv_heads": 8, "head_dim": 128, "dtype": "int3"},
    ],
)
def test_an_incomplete_architecture_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="model own"):
        ModelSpec("own", **fields)  # type: ignore[arg-type]
