"""The one table of settings that have no effect beside others: each one that was given is warned about."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kvspill.config import Config
from kvspill.config.messages import shown

_LISTING = ("mooncake", "bailian", "weka")
"""Formats whose rows list their own blocks."""


class Idle(NamedTuple):
    """Fields that nothing asks for in some configurations."""

    fields: tuple[str, ...]
    when: Callable[[Config], bool]
    reason: str
    remedy: str


class Unused(NamedTuple):
    """A setting as the user gave it, why it has no effect, and what to do."""

    said: str
    reason: str
    remedy: str


def _kind(config: Config) -> str | None:
    return None if config.recording is None else config.recording[0]


def _timeless(config: Config) -> bool:
    # Agents pause between their requests, and those pauses are sped up whoever takes the next session.
    return (
        config.arrival == "closed" and _kind(config) not in (None, "weka") and not config.enable_autoscaling
    )


IDLE: Final[tuple[Idle, ...]] = (
    Idle(
        ("trace_speedup", "replay_cycles", "skip_bad_rows"),
        lambda config: config.recording is None,
        "no recording is replayed",
        "Give --trace FORMAT:PATH as well, or leave it out.",
    ),
    Idle(
        ("max_conversations",),
        lambda config: _kind(config) != "sharegpt",
        "no ShareGPT conversations are replayed",
        "Give --dataset-path FILE as well, or leave it out.",
    ),
    Idle(
        ("trace_speedup",),
        lambda config: config.recording is not None and config.request_rate is not None,
        "--request-rate gives the requests new times",
        "Leave one of them out.",
    ),
    Idle(
        ("trace_speedup",),
        _timeless,
        "--arrival closed ignores the recorded times",
        "Leave one of them out.",
    ),
    Idle(
        ("rate_process",),
        lambda config: config.request_rate is None,
        "no rate is given",
        "Give --request-rate N as well, or leave it out.",
    ),
    Idle(
        (
            *("autoscaler_mode", "target_saturation", "min_users", "max_users", "scale_up_factor"),
            *("scale_down_factor", "autoscaler_interval", "autoscaler_stage", "autoscaler_cooldown"),
            *("capacity_metric", "slo_latency", "slo_percentile", "slo_target_ms", "slo_classes"),
        ),
        lambda config: not config.enable_autoscaling,
        "nothing is searched for",
        "Give --enable-autoscaling as well, or leave it out.",
    ),
    Idle(
        ("slo_latency", "slo_percentile", "slo_target_ms", "slo_classes"),
        lambda config: config.enable_autoscaling and config.autoscaler_mode != "slo",
        "only --autoscaler-mode slo has a target of latency",
        "Give --autoscaler-mode slo as well, or leave it out.",
    ),
    Idle(
        ("target_saturation", "scale_up_factor", "scale_down_factor"),
        lambda config: config.enable_autoscaling and config.autoscaler_mode != "qos",
        "only --autoscaler-mode qos has a target of saturation",
        "Give --autoscaler-mode qos as well, or leave it out.",
    ),
    Idle(
        ("min_tokens_per_sec",),
        lambda config: config.performance_profile != "throughput",
        "the latency profile has no target of throughput",
        "Give --performance-profile throughput as well, or leave it out.",
    ),
    Idle(
        ("rag_num_docs",),
        lambda config: not config.enable_rag,
        "nothing is retrieved",
        "Give --enable-rag as well, or leave it out.",
    ),
    Idle(
        ("prefill_us_per_token", "decode_ms_per_token"),
        lambda config: config.generation_mode != "deterministic",
        "only --generation-mode deterministic is calibrated by it",
        "Give --generation-mode deterministic as well, or leave it out.",
    ),
    Idle(
        ("block_tokens",),
        lambda config: config.io_model != "prefix" and config.layout != "slots",
        "only --io-model prefix has blocks; it changes nothing but what read inflation is held against",
        "Give --io-model prefix as well, or leave it out.",
    ),
    Idle(
        ("block_tokens",),
        lambda config: config.io_model == "prefix" and _kind(config) in _LISTING,
        "rows keep the blocks that they list; it counts for rows without a list only",
        "Leave it out.",
    ),
    Idle(
        (
            *("promote", "write_policy", "write_queue_blocks", "write_workers", "write_max_wait"),
            *("admit_uses", "prefetch_min_tokens"),
        ),
        lambda config: config.io_model != "prefix",
        "only --io-model prefix has blocks",
        "Give --io-model prefix as well, or leave it out.",
    ),
    Idle(
        ("promote",),
        lambda config: config.io_model == "prefix" and not config.cpu_bytes,
        "there is no DRAM tier to copy blocks into",
        "Give --cpu-mem-gb as well, or leave it out.",
    ),
    Idle(
        ("stream_tokens_per_read",),
        lambda config: config.io_model != "stream",
        "only --io-model stream reads the whole KV so often",
        "Give --io-model stream as well, or leave it out.",
    ),
    Idle(
        ("history", "decode_batch_size", "prefill_only_tokens"),
        lambda config: config.io_model != "mlperf",
        "only --io-model mlperf has that rule",
        "Give --io-model mlperf as well, or leave it out.",
    ),
    Idle(
        ("populate_entries",),
        lambda config: not config.decode_only,
        "only a decode node has entries before its load",
        "Give --decode-only as well, or leave it out.",
    ),
    Idle(
        ("conversation_end_probability", "max_turns", "disable_prefix_caching"),
        lambda config: config.recording is not None,
        "a recording decides what is asked",
        "Leave it out.",
    ),
    Idle(
        ("disable_multi_turn", "workload_preset"),
        lambda config: _kind(config) not in (None, "sharegpt"),
        "a recording decides what is asked",
        "Leave it out.",
    ),
)


def unused_settings(config: Config) -> Iterator[Unused]:
    """The flags and variables that were given and have no effect; files and defaults give many such."""
    for idle in IDLE:
        for name in idle.fields:
            label = config.sources.get(name, "")
            is_flag = label.startswith("--")
            if (is_flag or label.startswith("KVSPILL_")) and idle.when(config):
                value = getattr(config, name)
                text = f"{value:g}" if isinstance(value, float) else shown(value)
                joint = " " if is_flag else "="
                yield Unused(label if value is True else f"{label}{joint}{text}", idle.reason, idle.remedy)
