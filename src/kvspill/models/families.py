"""Readers of architectures that attend: to everything, to windows, to latent or compressed vectors."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

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
    if given is None:
        return _by_pattern(facts, pattern, otherwise)
    if isinstance(given, Mapping):
        counts = facts.part("layer_types")
        given = [kind for kind in given for _layer in range(counts.number(kind, least=0))]
        if len(given) != layers:
            raise facts.fail(f"layer_types does not have the {layers} layers of the model but {len(given)}")
    else:
        given = facts.per_layer("layer_types", layers)
    return [_NAMES.get(str(kind), str(kind)) for kind in given]


def _by_pattern(facts: Facts, pattern: int | None, otherwise: str) -> list[str]:
    """Every so-manieth layer, or as a word of L and G repeats: local layers and global ones."""
    named = facts.get("sliding_window_pattern")
    if isinstance(named, str) and named and not set(named) - {"L", "G"}:
        signs = (named * facts.layers)[: facts.layers]
        if signs[-1] != "G":
            raise facts.fail(f"sliding_window_pattern {named[:40]} does not say what the last layer is")
        return [FULL if sign == "G" else otherwise for sign in signs]
    if pattern is None and named is None:
        raise facts.fail("layer_types is missing")
    every = facts.number("sliding_window_pattern", default=pattern)
    return [otherwise if (layer + 1) % every else FULL for layer in range(facts.layers)]


def counted(facts: Facts, kinds: Sequence[str], *known: str) -> Counter[str]:
    """How many layers there are of each type; a type that the family does not have is refused."""
    unknown = sorted({*kinds} - {*known})
    if unknown:
        raise facts.fail(f"layers of type {unknown[0][:40]} are not known")
    return Counter(kinds)


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


def own_layers(facts: Facts) -> Groups:
    """Each layer keeps its own; layers that share the KV of others are not known."""
    if facts.get("use_cla"):
        raise facts.fail("use_cla is true, and which layers share their KV is not known")
    return even(facts)


def crossed(facts: Facts) -> Groups:
    """Some layers attend to images alone and keep nothing of the text."""
    crossing = facts.listed("cross_attention_layers")
    if crossing is None:
        raise facts.fail("cross_attention_layers is missing")
    if not {*crossing} <= {*range(facts.layers)}:
        raise facts.fail(f"cross_attention_layers names layers that are none of the {facts.layers}")
    return full_layers(facts.layers - len({*crossing}), facts.kv_heads, 2 * facts.head_dim)


def _windowed(facts: Facts, windowed: int) -> Groups:
    """So many layers with a window, the others without."""
    heads, width = facts.kv_heads, 2 * facts.head_dim
    window = facts.number("sliding_window")
    full = full_layers(facts.layers - windowed, heads, width)
    return full + window_layers(facts, windowed, heads, width, window)


def all_windows(facts: Facts) -> Groups:
    """One window for all layers where one is named."""
    if facts.get("layer_types") is not None:
        return windows(None)(facts)
    return even(facts) if facts.get("sliding_window") is None else _windowed(facts, facts.layers)


def late_windows(facts: Facts) -> Groups:
    """A window for the layers behind the first ones."""
    if facts.get("layer_types") is not None:
        return windows(None)(facts)
    if facts.get("sliding_window") is None:
        return even(facts)
    return _windowed(facts, max(0, facts.layers - facts.number("max_window_layers", least=0)))


def odd_windows(facts: Facts) -> Groups:
    """A window for every other one of the first layers."""
    if facts.get("layer_types") is not None:
        return windows(None)(facts)
    return _windowed(facts, (min(facts.layers, facts.number("max_window_layers", least=0)) + 1) // 2)


def unplaced_windows(facts: Facts) -> Groups:
    """A window for the layers without rotary positions."""
    if facts.get("layer_types") is not None:
        return windows(None)(facts)
    return _windowed(facts, placed(facts).count(False))


def placed(facts: Facts) -> list[bool]:
    """Which layers have rotary positions: as listed, or all but every so-manieth."""
    given = facts.per_layer("no_rope_layers", facts.layers) or ()
    every = facts.number("no_rope_layer_interval", default=4)
    return [bool(item) for item in given] or [(layer + 1) % every != 0 for layer in range(facts.layers)]


def switched(read: Callable[[Facts], Groups]) -> Callable[[Facts], Groups]:
    """Windows that a file must switch on."""

    def read_switched(facts: Facts) -> Groups:
        on = facts.get("use_sliding_window") and facts.get("sliding_window") is not None
        return read(facts) if on else even(facts)

    return read_switched


def windows(pattern: int | None) -> Callable[[Facts], Groups]:
    """Layers of full attention among others that have a window."""

    def read(facts: Facts) -> Groups:
        if (
            facts.get("layer_types") is None
            and "sliding_window" in facts.values
            and facts.get("sliding_window") is None
        ):
            return even(facts)
        kinds = counted(facts, kinds_of(facts, pattern), FULL, SLIDING)
        return _windowed(facts, kinds[SLIDING]) if kinds[SLIDING] else even(facts)

    return read


def chunks(facts: Facts) -> Groups:
    """Chunked attention sees no farther back than its chunk: a window of at most that length."""
    if facts.get("layer_types") is None:
        listed = [CHUNKED if rotary else FULL for rotary in placed(facts)]
    else:
        listed = kinds_of(facts)
    kinds = counted(facts, listed, FULL, CHUNKED)
    heads, width = facts.kv_heads, 2 * facts.head_dim
    chunk = facts.number("attention_chunk_size")
    return full_layers(kinds[FULL], heads, width) + window_layers(facts, kinds[CHUNKED], heads, width, chunk)


def falcon(facts: Facts) -> Groups:
    """One head of K and V for all, unless the file says otherwise."""
    multi_query = facts.get("multi_query") is not False and not facts.get("new_decoder_architecture")
    heads = 1 if multi_query else facts.number("num_kv_heads", "num_attention_heads")
    return full_layers(facts.layers, heads, 2 * facts.head_dim)


def chatglm(facts: Facts) -> Groups:
    """Older GLM with names of its own for heads and their width."""
    grouped = facts.get("multi_query_attention")
    heads = facts.number("multi_query_group_num" if grouped else "num_attention_heads")
    return full_layers(facts.layers, heads, 2 * facts.number("kv_channels"))


def gemma4(facts: Facts) -> Groups:
    """Full layers have their own heads; the last layers may use the KV of earlier ones."""
    stored = facts.layers - facts.number("num_kv_shared_layers", least=0, default=0)
    # Its class makes the last layer one of full attention, whatever the list says.
    kinds = counted(facts, [*kinds_of(facts, 6)[:-1], FULL][:stored], FULL, SLIDING)
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
        kinds = counted(facts, kinds_of(facts, pattern)[:stored], FULL, SLIDING)
        heads, width = facts.kv_heads, 2 * facts.head_dim
        window = window_layers(facts, kinds[SLIDING], heads, width, facts.number("sliding_window"))
        return full_layers(kinds[FULL], heads, width) + window

    return read


def mimo(facts: Facts) -> Groups:
    """Windows have heads of their own, and K and V differ in width."""
    pattern = facts.per_layer("hybrid_layer_pattern", facts.layers)
    listed = kinds_of(facts) if pattern is None else [SLIDING if item else FULL for item in pattern]
    kinds = counted(facts, listed, FULL, SLIDING)
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
    types = facts.per_layer("indexer_types", facts.layers)
    if types is None:
        every = facts.number("index_topk_freq", default=1)
        offset = facts.number("index_skip_topk_offset", least=0, default=0)
        own = [max(layer - offset + 1, 0) % every == 0 for layer in range(facts.layers)]
    else:
        own = [kind == "full" for kind in types]
    return [*mla(facts), LayerGroup("indexer", sum(own), facts.number("index_head_dim"))]


def indexed(facts: Facts) -> Groups:
    """K and V of every layer, and for sparse layers one key per token by which they choose."""
    sparse = facts.part("sparse_attention_config")
    layers = sum(map(bool, sparse.per_layer("sparse_attention_freq", facts.layers) or ()))
    width = sparse.number("sparse_index_dim")
    return [*even(facts), LayerGroup("indexer", layers, width, dtype="bfloat16", fixed=True)]


def compressed(facts: Facts) -> Groups:
    """Every layer has a window; most keep one vector for every few tokens beside it."""
    ratios = facts.per_layer("compress_ratios", facts.layers)
    if ratios is None:
        raise facts.fail("compress_ratios does not have a ratio for each layer")
    if not all(type(ratio) is int and ratio >= 0 for ratio in ratios):
        raise facts.fail("compress_ratios is not a list of whole numbers")
    counts = Counter(ratios)
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
