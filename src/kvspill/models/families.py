"""Readers of architectures that attend: to everything, to windows, to latent or compressed vectors."""

from collections import Counter
from collections.abc import Callable, Mapping

from kvspill.models.facts import Facts
from kvspill.models.groups import LayerGroup

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"
_NAMES = {"attention": FULL, "mamba": LINEAR}
"""Older names of the types of layers."""

Groups = list[LayerGroup]


def kinds_of(facts: Facts, pattern: int | None = None, otherwise: str = SLIDING) -> list[str]:
    """The type of each layer: as listed, or every so-manieth layer of full attention.

    `layer_types` may also be a mapping from types to their number, where their order does not matter.
    """
    given, layers = facts.get("layer_types"), facts.layers
    if isinstance(given, Mapping):
        counts = facts.part("layer_types")
        given = [kind for kind in given for _layer in range(counts.number(kind, least=0))]
    if given is None:
        if pattern is None and facts.get("sliding_window_pattern") is None:
            raise facts.fail("layer_types is missing")
        every = facts.number("sliding_window_pattern", default=pattern)
        return [otherwise if (layer + 1) % every else FULL for layer in range(layers)]
    if not isinstance(given, list) or len(given) < layers:
        raise facts.fail(f"layer_types does not have the {layers} layers of num_hidden_layers")
    kinds = [_NAMES.get(str(kind), str(kind)) for kind in given[:layers]]
    unknown = sorted({*kinds} - {FULL, SLIDING, CHUNKED, LINEAR})
    if unknown:
        raise facts.fail(f"layers of type {unknown[0][:40]} are not known")
    return kinds


def window_layers(facts: Facts, layers: int, heads: int, width: int, window: int) -> Groups:
    """Layers with a window; one as long as the longest context keeps everything."""
    if not layers:
        return []
    longest = facts.get("max_position_embeddings")
    if isinstance(longest, int) and window >= longest:
        return [LayerGroup("full", layers, width, heads)]
    return [LayerGroup("window", layers, width, heads, window=window)]


def full_layers(layers: int, heads: int, width: int) -> Groups:
    return [LayerGroup("full", layers, width, heads)] if layers else []


def even(facts: Facts) -> Groups:
    return full_layers(facts.layers, facts.kv_heads, 2 * facts.head_dim)


def all_windows(facts: Facts) -> Groups:
    """One window for all layers where one is named."""
    if facts.get("layer_types") is None and facts.get("sliding_window") is None:
        return even(facts)
    if facts.get("layer_types") is not None:
        return windows(None)(facts)
    return window_layers(
        facts, facts.layers, facts.kv_heads, 2 * facts.head_dim, facts.number("sliding_window")
    )


def late_windows(facts: Facts) -> Groups:
    """A window for the layers behind the first ones, where it is switched on."""
    if not facts.get("use_sliding_window") or facts.get("sliding_window") is None:
        return even(facts)
    if facts.get("layer_types") is not None:
        return windows(None)(facts)
    full = min(facts.layers, facts.number("max_window_layers"))
    heads, width = facts.kv_heads, 2 * facts.head_dim
    behind = window_layers(facts, facts.layers - full, heads, width, facts.number("sliding_window"))
    return full_layers(full, heads, width) + behind


def windows(pattern: int | None) -> Callable[[Facts], Groups]:
    """Layers of full attention among others that have a window."""

    def read(facts: Facts) -> Groups:
        kinds = Counter(kinds_of(facts, pattern))
        heads, width = facts.kv_heads, 2 * facts.head_dim
        groups = full_layers(kinds[FULL], heads, width)
        if kinds[SLIDING]:
            groups += window_layers(facts, kinds[SLIDING], heads, width, facts.number("sliding_window"))
        if kinds[LINEAR] or kinds[CHUNKED]:
            raise facts.fail("layers of linear or chunked attention are not known of it")
        return groups

    return read


def chunks(facts: Facts) -> Groups:
    """Chunked attention sees no farther back than its chunk: a window of at most that length."""
    kinds = Counter(kinds_of(facts, 4, CHUNKED))
    heads, width = facts.kv_heads, 2 * facts.head_dim
    chunk = facts.number("attention_chunk_size")
    return full_layers(kinds[FULL], heads, width) + window_layers(facts, kinds[CHUNKED], heads, width, chunk)


def gemma4(facts: Facts) -> Groups:
    """Full layers have their own heads; the last layers may use the KV of earlier ones."""
    stored = facts.layers - facts.number("num_kv_shared_layers", least=0, default=0)
    kinds = Counter(kinds_of(facts, 6)[:stored])
    own_heads = facts.get("attention_k_eq_v") and facts.get("num_global_key_value_heads")
    heads = facts.number("num_global_key_value_heads") if own_heads else facts.kv_heads
    dim = facts.number("global_head_dim", "head_dim")
    window = window_layers(
        facts, kinds[SLIDING], facts.kv_heads, 2 * facts.head_dim, facts.number("sliding_window")
    )
    return full_layers(kinds[FULL], heads, 2 * dim) + window


def shared(pattern: int) -> Callable[[Facts], Groups]:
    """The last layers use the KV of earlier ones."""

    def read(facts: Facts) -> Groups:
        stored = facts.layers - facts.number("num_kv_shared_layers", least=0, default=0)
        kinds = Counter(kinds_of(facts, pattern)[:stored])
        heads, width = facts.kv_heads, 2 * facts.head_dim
        window = window_layers(facts, kinds[SLIDING], heads, width, facts.number("sliding_window"))
        return full_layers(kinds[FULL], heads, width) + window

    return read


def mimo(facts: Facts) -> Groups:
    """Windows have heads of their own, and K and V differ in width."""
    pattern = facts.listed("hybrid_layer_pattern")
    if pattern is None:
        kinds = Counter(kinds_of(facts))
    else:
        kinds = Counter(SLIDING if windowed else FULL for windowed in pattern[: facts.layers])
    groups = full_layers(kinds[FULL], facts.kv_heads, facts.head_dim + facts.number("v_head_dim"))
    width = facts.number("swa_head_dim") + facts.number("swa_v_head_dim")
    heads, window = facts.number("swa_num_key_value_heads"), facts.number("sliding_window")
    return groups + window_layers(facts, kinds[SLIDING], heads, width, window)


def latent(facts: Facts, layers: int) -> Groups:
    width = facts.number("kv_lora_rank") + facts.number("qk_rope_head_dim", least=0)
    return [LayerGroup("mla", layers, width)]


def mla(facts: Facts) -> Groups:
    return latent(facts, facts.layers)


def double_mla(facts: Facts) -> Groups:
    """Each layer attends twice."""
    return latent(facts, 2 * facts.number("num_layers"))


def indexed_mla(facts: Facts) -> Groups:
    """Sparse attention over latent vectors; some layers take over what an earlier one has chosen."""
    types = facts.listed("indexer_types")
    if types is None:
        every = facts.number("index_topk_freq", default=1)
        offset = facts.number("index_skip_topk_offset", least=0, default=0)
        own = [max(layer - offset + 1, 0) % every == 0 for layer in range(facts.layers)]
    else:
        own = [kind == "full" for kind in types[: facts.layers]]
    return [*mla(facts), LayerGroup("indexer", sum(own), facts.number("index_head_dim"))]


def indexed(facts: Facts) -> Groups:
    """K and V of every layer, and for sparse layers one key per token by which they choose."""
    sparse = facts.part("sparse_attention_config")
    layers = sum(map(bool, sparse.listed("sparse_attention_freq") or ()))
    width = sparse.number("sparse_index_dim")
    return [*even(facts), LayerGroup("indexer", layers, width, dtype="bfloat16", fixed=True)]


def compressed(facts: Facts) -> Groups:
    """Every layer has a window; most keep one vector for every few tokens beside it."""
    ratios = facts.listed("compress_ratios")
    if ratios is None or len(ratios) < facts.layers:
        raise facts.fail("compress_ratios does not have a ratio for each layer")
    if not all(type(ratio) is int and ratio >= 0 for ratio in ratios):
        raise facts.fail("compress_ratios is not a list of whole numbers")
    counts = Counter(ratios[: facts.layers])
    width = facts.head_dim
    window = LayerGroup(
        "window", facts.layers, width, facts.kv_heads, window=facts.number("sliding_window"), dtype="fp8"
    )
    groups = [
        LayerGroup("compressed", layers, width, facts.kv_heads, ratio=ratio, dtype="fp8")
        for ratio, layers in sorted(counts.items())
        if ratio
    ]
    if counts[_INDEXED_RATIO]:
        index = facts.number("index_head_dim")
        groups.append(
            LayerGroup(
                "indexer", counts[_INDEXED_RATIO], index, ratio=_INDEXED_RATIO, dtype="fp4", fixed=True
            )
        )
    return [window, *groups]


_INDEXED_RATIO = 4
"""The lightly compressed layers are the sparse ones."""
