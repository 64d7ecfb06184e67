"""Claims about model architectures and the bytes of KV cache they need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvspill.errors import UsageError
from kvspill.models import all_models, even_model, find_model
from kvspill.models.groups import KvSize, LayerGroup

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
    ],
)
def test_a_token_takes_exactly_the_published_bytes(name: str, nbytes: int) -> None:
    kv = find_model(name).kv()
    assert [kv.of(1), kv.of(100_000), kv.block(256)] == [nbytes, 100_000 * nbytes, 256 * nbytes]
    assert kv.bytes_per_token == nbytes
    assert not kv.has_end


def test_tiny_1b_has_twelve_layers() -> None:
    assert find_model("tiny-1b").layers == 12


@pytest.mark.parametrize(("ranks", "nbytes"), [(1, 327_680), (2, 163_840), (4, 81_920), (8, 40_960)])
def test_tensor_parallel_ranks_share_the_kv_heads(ranks: int, nbytes: int) -> None:
    assert find_model("llama3.1-70b-instruct").kv(ranks).of(1) == nbytes


def test_more_ranks_than_heads_replicate_a_head_on_each() -> None:
    assert find_model("llama3.1-70b-instruct").kv(16).of(1) == 40_960


def test_mla_is_replicated_on_every_rank() -> None:
    assert find_model("deepseek-v3").kv(8) == find_model("deepseek-v3").kv(1)


@pytest.mark.parametrize("ranks", [3, 5, 6, 12])
def test_ranks_that_do_not_divide_the_heads_are_refused(ranks: int) -> None:
    with pytest.raises(UsageError, match=f"--tensor-parallel {ranks}: does not divide the 8 KV heads"):
        find_model("llama3.1-8b").kv(ranks).of(1)


def test_an_unknown_model_is_answered_with_the_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        find_model("lama3.1-8b")
    assert str(caught.value) == (
        "--model lama3.1-8b: unknown model; did you mean llama3.1-8b or llama3.1-405b? "
        "`kvspill models` lists them all"
    )


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "llama3.1-70b", "Llama_3.1_70b"])
def test_a_model_is_found_however_its_parts_are_divided(name: str) -> None:
    with pytest.raises(UsageError, match=r"did you mean llama3\.1-70b-instruct"):
        find_model(name)


@pytest.mark.parametrize(
    ("dtype", "factor"), [("float32", 2), ("bfloat16", 1), ("fp8", 0.5), ("int8", 0.5), ("fp4", 0.25)]
)
def test_the_dtype_scales_the_bytes(dtype: str, factor: float) -> None:
    own = even_model("own", 32, "gqa", 8, 128, dtype=dtype)
    assert own.kv().of(1) == 131_072 * factor


def test_an_own_model_replaces_the_built_in_one_of_its_name() -> None:
    own = even_model("tiny-1b", 1, "mha", 1, 64)
    assert all_models([own])["tiny-1b"].kv().of(1) == 256


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
        even_model("own", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "layers"), [("gpt-oss-120b", 36), ("gpt-oss-20b", 24)])
def test_every_other_layer_of_gpt_oss_keeps_128_tokens(name: str, layers: int) -> None:
    """A token of a layer takes 2,048 bytes: 8 heads of 64 elements, K and V."""
    kv = find_model(name).kv()
    half = layers // 2 * 2048
    assert kv.of(100) == 2 * 100 * half
    assert kv.of(131_072) == (131_072 + 128) * half
    assert (kv.bytes_per_token, kv.end(131_072)) == (half, 128 * half)


@given(
    st.lists(
        st.builds(
            LayerGroup,
            kind=st.just("window"),
            layers=st.integers(1, 9),
            width=st.integers(1, 64).map(lambda half: 2 * half),
            heads=st.sampled_from([1, 2, 4]),
            window=st.integers(1, 5000),
        )
        | st.builds(
            LayerGroup,
            kind=st.just("compressed"),
            layers=st.integers(1, 9),
            width=st.integers(1, 64).map(lambda half: 2 * half),
            ratio=st.sampled_from([1, 4, 128]),
        )
        | st.builds(LayerGroup, kind=st.just("state"), layers=st.integers(1, 9), width=st.integers(1, 64)),
        max_size=6,
    ),
    st.integers(1, 100_000),
)
def test_a_context_takes_what_its_layers_keep_one_by_one(groups: list[LayerGroup], tokens: int) -> None:
    kept = 0
    for group in groups:
        for _layer in range(group.layers):
            if group.kind == "state":
                kept += group.width * 2
            elif group.kind == "window":
                kept += group.heads * group.width * 2 * len(range(max(0, tokens - group.window), tokens))
            else:
                kept += group.heads * group.width * 2 * len(range(group.ratio, tokens + 1, group.ratio))
    kv = KvSize.of_groups(groups)
    assert kv.of(tokens) == kept
    assert kv.of(tokens) <= kv.of(tokens + 1)
    blocks = -(-tokens // 256)
    assert kv.of(256 * blocks) == blocks * kv.block(256) + kv.end(256 * blocks)
