"""When a setting has no effect: the rules that fields declare, so that a setting in vain is warned about."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kvspill.plugins import LISTS_BLOCKS, OWN_PAUSES, Declared, Kind

CONVERSATIONS: Final = "sharegpt"
"""The format of --dataset-path: texts without times."""


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Why a field changes nothing in some configurations, and what to do."""

    when: Callable[[Any, Declared], bool]
    """Given the configuration and the plug-ins there are."""
    reason: str
    remedy: str


def _needs(flag: str, reason: str, when: Callable[[Any], bool]) -> NoEffect:
    """A rule whose remedy is another flag."""
    remedy = f"Give {flag} as well, or leave it out."
    return NoEffect(lambda config, _declared: when(config), reason, remedy)


def _beside(reason: str, when: Callable[[Any], bool], remedy: str = "Leave it out.") -> NoEffect:
    """A rule whose remedy is to leave something out."""
    return NoEffect(lambda config, _declared: when(config), reason, remedy)


def _format(config: Any) -> str | None:
    return None if config.recording is None else str(config.recording[0])


def _format_can(config: Any, declared: Declared, ability: str) -> bool:
    found = declared.get(Kind.TRACE)
    plugin = found.plugins.get(_format(config) or "") if found is not None else None
    return plugin is not None and ability in plugin.can


def _other_model(config: Any, declared: Declared, name: str) -> bool:
    """Whether another I/O model of ours than the named one is used; what others read is not known."""
    found = declared.get(Kind.IO_MODEL)
    plugin = found.plugins.get(config.io_model) if found is not None else None
    return config.io_model != name and (plugin is None or plugin.is_ours)


def _only(name: str, reason: str, spared: Callable[[Any], bool] = lambda _config: False) -> NoEffect:
    """A rule of settings that one I/O model alone reads."""
    return NoEffect(
        lambda config, declared: _other_model(config, declared, name) and not spared(config),
        reason,
        f"Give --io-model {name} as well, or leave it out.",
    )


NO_RECORDING: Final = _needs(
    "--trace FORMAT:PATH", "no recording is replayed", lambda config: config.recording is None
)
NO_CONVERSATIONS: Final = _needs(
    "--dataset-path FILE",
    "no ShareGPT conversations are replayed",
    lambda config: _format(config) != CONVERSATIONS,
)
NEW_TIMES: Final = _beside(
    "--request-rate gives the requests new times",
    lambda config: config.recording is not None and config.request_rate is not None,
    "Leave one of them out.",
)
NO_TIMES: Final = NoEffect(
    # Agents pause between their requests, and those pauses are sped up whichever user takes the next session.
    lambda config, declared: (
        config.arrival == "closed"
        and config.recording is not None
        and not _format_can(config, declared, OWN_PAUSES)
        and not config.enable_autoscaling
    ),
    "--arrival closed ignores the recorded times",
    "Leave one of them out.",
)
NO_RATE: Final = _needs("--request-rate N", "no rate is given", lambda config: config.request_rate is None)
NO_SEARCH: Final = _needs(
    "--enable-autoscaling", "nothing is searched for", lambda config: not config.enable_autoscaling
)
NO_SLO_SEARCH: Final = _needs(
    "--enable-autoscaling --autoscaler-mode slo",
    "nothing is searched for, and each class has its own target",
    lambda config: not config.enable_autoscaling,
)
NOT_SLO: Final = _needs(
    "--autoscaler-mode slo",
    "only --autoscaler-mode slo has a target of latency",
    lambda config: config.enable_autoscaling and config.autoscaler_mode != "slo",
)
NOT_QOS: Final = _needs(
    "--autoscaler-mode qos",
    "only --autoscaler-mode qos has a target of saturation",
    lambda config: config.enable_autoscaling and config.autoscaler_mode != "qos",
)
NOT_CAPACITY: Final = _needs(
    "--autoscaler-mode capacity",
    "only --autoscaler-mode capacity maximises a throughput",
    lambda config: config.enable_autoscaling and config.autoscaler_mode != "capacity",
)
NOT_THROUGHPUT: Final = _needs(
    "--performance-profile throughput",
    "the latency profile has no target of throughput",
    lambda config: config.performance_profile != "throughput",
)
NOT_PRECONDITIONED: Final = _needs(
    "--precondition", "nothing is preconditioned", lambda config: not config.precondition
)
NO_GPU_TIER: Final = _needs("--gpu-mem-gb GIB", "there is no GPU tier", lambda config: not config.gpu_bytes)
NO_REAL_GPU: Final = _beside(
    "no GPU moves a byte",
    lambda config: config.gpu_tier != "real",
    "Leave it out, or use kvspill run where a GPU can be used.",
)
NO_GPU_CHOSEN: Final = _beside(
    "no GPU is used",
    # Several modelled GPUs make a larger tier; --num-gpus has a rule of its own.
    lambda config: (
        config.gpu_tier != "real"
        and config.num_gpus is None
        and (len(config.gpu_device) == 1 or not config.gpu_bytes)
    ),
    NO_REAL_GPU.remedy,
)
NOT_TO_GPU: Final = _needs(
    "--load-to gpu", "reads end in host memory", lambda config: config.load_to == "host"
)
NO_RAG: Final = _needs("--enable-rag", "nothing is retrieved", lambda config: not config.enable_rag)
NOT_CALIBRATED: Final = _needs(
    "--generation-mode deterministic",
    "only --generation-mode deterministic is calibrated by it",
    lambda config: config.generation_mode != "deterministic",
)
NO_BLOCK_SIZE: Final = _only(
    "prefix",
    "only --io-model prefix has blocks; it only changes what read inflation is compared with",
    spared=lambda config: config.layout == "slots",
)
LISTED_BLOCKS: Final = NoEffect(
    lambda config, declared: config.io_model == "prefix" and _format_can(config, declared, LISTS_BLOCKS),
    "rows keep the blocks that they list; it counts for rows without a list only",
    "Leave it out.",
)
DIRECT_ON: Final = _beside("O_DIRECT leaves no pages", lambda config: config.direct == "on")
NO_BLOCKS: Final = _only("prefix", "only --io-model prefix has blocks")
NO_DRAM_TIER: Final = _needs("--cpu-mem-gb GIB", "there is no DRAM tier", lambda config: not config.cpu_bytes)
NO_DRAM: Final = _needs(
    "--cpu-mem-gb",
    "there is no DRAM tier to copy blocks into",
    lambda config: config.io_model == "prefix" and not config.cpu_bytes,
)
NOT_STREAM: Final = _only("stream", "only --io-model stream reads the whole KV at every step")
NOT_MLPERF: Final = _only("mlperf", "only --io-model mlperf has that rule")
NOT_DECODE_NODE: Final = _needs(
    "--decode-only", "only a decode node has entries before its load", lambda config: not config.decode_only
)
RECORDED: Final = _beside("a recording decides what is asked", lambda config: config.recording is not None)
RECORDED_TURNS: Final = _beside(
    "a recording decides what is asked", lambda config: _format(config) not in (None, CONVERSATIONS)
)
