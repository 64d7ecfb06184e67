"""Readers of architectures that keep a state in some or all of their layers."""

import math

from kvspill.models.facts import Facts
from kvspill.models.families import FULL, LINEAR, Groups, counted, even, full_layers, kinds_of, latent
from kvspill.models.groups import DTYPE_BITS, LayerGroup

_SIGNS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Types of layers, and their signs in a pattern."""


def state(layers: int, heads: int, conv: int, recurrent: int, dtype: str) -> Groups:
    """The state of linear layers: the last inputs of a convolution, and a recurrent matrix."""
    return [
        LayerGroup("state", layers, width // heads, heads, dtype=kind, fixed=True)
        for width, kind in ((conv, "bfloat16"), (recurrent, dtype))
        if layers and width
    ]


def state_dtype(facts: Facts) -> str:
    dtype = str(facts.get("mamba_ssm_cache_dtype") or facts.get("mamba_ssm_dtype") or "float32")
    if dtype not in DTYPE_BITS:
        raise facts.fail(f"states of type {dtype[:40]} are not known")
    return dtype


def delta_net(facts: Facts) -> Groups:
    """Gated delta nets among layers of full attention."""
    every = facts.number("full_attention_interval", default=4)
    kinds = counted(facts, kinds_of(facts, every, LINEAR), FULL, LINEAR)
    key_heads, value_heads = facts.number("linear_num_key_heads"), facts.number("linear_num_value_heads")
    key_dim, value_dim = facts.number("linear_key_head_dim"), facts.number("linear_value_head_dim")
    conv = (facts.number("linear_conv_kernel_dim") - 1) * (2 * key_heads * key_dim + value_heads * value_dim)
    recurrent = value_heads * key_dim * value_dim
    shared = math.gcd(key_heads, value_heads)
    states = state(kinds[LINEAR], shared, conv, recurrent, state_dtype(facts))
    return full_layers(kinds[FULL], facts.kv_heads, 2 * facts.head_dim) + states


def kimi_linear(facts: Facts) -> Groups:
    """Kimi delta attention among layers of MLA."""
    linear = facts.part("linear_attn_config")
    full, delta = linear.listed("full_attn_layers"), linear.listed("kda_layers")
    if full is None or delta is None or len(full) + len(delta) != facts.layers:
        raise facts.fail(f"full_attn_layers and kda_layers do not make {facts.layers} layers")
    heads, dim = linear.number("num_heads"), linear.number("head_dim")
    conv = (linear.number("short_conv_kernel_size") - 1) * 3 * heads * dim
    return latent(facts, len(full)) + state(len(delta), heads, conv, heads * dim * dim, "float32")


def mamba2(facts: Facts, layers: int, keys: tuple[str, str, str, str, str]) -> Groups:
    heads, dim, groups, size, kernel = (facts.number(key) for key in keys)
    conv = (kernel - 1) * (heads * dim + 2 * groups * size)
    return state(layers, math.gcd(heads, groups), conv, heads * dim * size, state_dtype(facts))


def nemotron_h(facts: Facts) -> Groups:
    """Mamba-2 layers, few layers of attention, and layers that keep nothing."""
    pattern: object = facts.get("layers_block_type") or facts.get("hybrid_override_pattern")
    if isinstance(pattern, list):
        pattern = "".join(_SIGNS.get(str(kind), "?") for kind in pattern)
    layers = facts.get("num_hidden_layers")
    if isinstance(pattern, str) and layers is not None and len(pattern) != layers:
        raise facts.fail(f"the pattern of layers has {len(pattern)} and num_hidden_layers says {layers}")
    if not isinstance(pattern, str) or not pattern or set(pattern) - {*_SIGNS.values()}:
        raise facts.fail("layers_block_type and hybrid_override_pattern do not say what each layer is")
    keys = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    width = 2 * facts.number("head_dim", "attention_head_dim")
    return full_layers(pattern.count("*"), facts.kv_heads, width) + mamba2(facts, pattern.count("M"), keys)


def granite_hybrid(facts: Facts) -> Groups:
    kinds = counted(facts, kinds_of(facts), FULL, LINEAR)
    keys = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    groups = full_layers(kinds[FULL], facts.kv_heads, 2 * facts.head_dim)
    return groups + (mamba2(facts, kinds[LINEAR], keys) if kinds[LINEAR] else [])


def falcon_h1(facts: Facts) -> Groups:
    """Every layer has both attention and a state."""
    keys = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    return even(facts) + mamba2(facts, facts.layers, keys)


def jamba(facts: Facts) -> Groups:
    """Mamba layers, and one of attention in every so many."""
    every, first = facts.number("attn_layer_period"), facts.number("attn_layer_offset", least=0)
    full = sum(layer % every == first for layer in range(facts.layers))
    channels = facts.number("mamba_expand") * facts.number("hidden_size")
    conv = (facts.number("mamba_d_conv") - 1) * channels
    recurrent = channels * facts.number("mamba_d_state")
    states = state(facts.layers - full, math.gcd(channels, 64), conv, recurrent, state_dtype(facts))
    return full_layers(full, facts.kv_heads, 2 * facts.head_dim) + states


def short_convolutions(facts: Facts) -> Groups:
    """Layers of full attention among convolutions, which keep their last inputs."""
    types, chosen = facts.per_layer("layer_types", facts.layers), facts.listed("full_attn_idxs")
    if types is None:
        if chosen is None:
            raise facts.fail("layer_types is missing")
        types = [FULL if layer in chosen else "conv" for layer in range(facts.layers)]
    kinds = counted(facts, types, FULL, "conv")
    size = facts.number("hidden_size")
    conv = (facts.number("conv_L_cache") - 1) * size
    states = state(kinds["conv"], math.gcd(size, 64), conv, 0, "bfloat16")
    return full_layers(kinds[FULL], facts.kv_heads, 2 * facts.head_dim) + states


def lightning(facts: Facts) -> Groups:
    """Linear layers with one matrix per head."""
    types = facts.per_layer("attn_type_list", facts.layers)
    kinds = kinds_of(facts) if types is None else [FULL if kind else LINEAR for kind in types]
    full = counted(facts, kinds, FULL, LINEAR)[FULL]
    heads, dim = facts.number("num_attention_heads"), facts.head_dim
    states = state(facts.layers - full, heads, 0, heads * dim * dim, "float32")
    return full_layers(full, facts.kv_heads, 2 * dim) + states
