"""Checks of a whole configuration that need no machine: contradictions and runs that cannot fit."""

import math
from typing import TYPE_CHECKING

from kvspill.config.effects import CONVERSATIONS
from kvspill.errors import UsageError
from kvspill.records import GIB, block_padded
from kvspill.texts import size_text

if TYPE_CHECKING:
    from kvspill.config import Config

MIN_OPEN_THINK_SECONDS = 0.001
RATE_MAX = 1e6
MEMORY_USABLE_SHARE = 0.8
"""Share of a memory tier that entries may take (C1)."""


NO_LIMIT_BYTES = 1 << 49
"""A budget of this size or more is called no limit: it stands for a store that tells none."""


def gb_flag_value(nbytes: int) -> str:
    """The smallest value of a --*-gb flag, in steps of 0.1, that holds so many bytes."""
    tenths = -(-nbytes * 10 // GIB)
    return f"{tenths / 10:g}"


def check_config(config: "Config") -> None:
    """Raise a UsageError where the configuration cannot be meant."""
    _check_names(config)
    _check_times(config)
    _check_workload(config)
    _check_tiers(config)
    _check_autoscaling(config)
    check_fit(config, config.storage_bytes)


def _check_names(config: "Config") -> None:
    for name in config.models:
        if not name.strip() or not name.isprintable():
            raise UsageError(f"models: {name!r} is no name for a model; use letters, digits, '-' and '.'")
    kv = config.kv  # unknown models and uneven splits are refused here
    if config.io_model == "prefix" and not kv.grows:
        raise UsageError(
            f"--io-model prefix: no layer of {config.model} keeps every token, so there are no blocks; "
            "use --io-model mlperf, or for a curve another model"
        )
    if not any(persona.weight > 0 for persona in config.personas.values()):
        raise UsageError("personas: every weight is 0, so nobody asks; give one of them a weight above 0")
    for name, persona in config.personas.items():
        if config.recording is None:
            asks = persona.weight > 0
        else:
            asks = config.recording[0] == CONVERSATIONS and name == "chatbot"
        if config.arrival == "open" and asks and persona.think[0] < MIN_OPEN_THINK_SECONDS:
            raise UsageError(
                f"personas.{name}.think {persona.think[0]:g}: open arrivals without a pause never end; "
                "give at least 0.001 s or use --arrival closed"
            )


def _check_times(config: "Config") -> None:
    if config.duration is None and config.max_requests is None and config.recording is None:
        raise UsageError("--duration: missing; give --duration SECONDS or --max-requests N")
    if config.warmup is not None and config.duration is not None and config.warmup >= config.duration:
        raise UsageError(
            f"--warmup {config.warmup:g}: leaves nothing of --duration {config.duration:g} to measure; "
            "give a shorter warm-up or a longer duration"
        )


def _check_workload(config: "Config") -> None:
    if config.prefill_only and config.decode_only:
        raise UsageError("--prefill-only contradicts --decode-only; give one of them")
    if config.request_rate is not None and config.arrival == "closed":
        raise UsageError(
            f"--request-rate {config.request_rate:g} contradicts --arrival closed, where users wait for "
            "answers; leave one of them out"
        )
    if config.request_rate is not None and config.request_rate > RATE_MAX and config.max_requests is None:
        raise UsageError(
            f"--request-rate {config.request_rate:g}: too many to plan; give at most "
            f"{RATE_MAX:,.0f} per second, or --max-requests N for so many at once"
        )
    flags = [
        flag
        for flag, given in (
            ("--dataset-path", config.dataset_path is not None),
            ("--trace", config.trace is not None),
            ("--use-burst-trace", config.use_burst_trace),
        )
        if given
    ]
    if len(flags) > 1:
        raise UsageError(f"{flags[0]} contradicts {flags[1]}; replay one recording at a time")
    if config.enable_rag and flags:
        raise UsageError(
            f"--enable-rag contradicts {flags[0]}: nothing is added to a recording; leave one out"
        )
    if config.recording is not None and config.recording[0] == CONVERSATIONS and config.trace_speedup != 1:
        raise UsageError(
            f"--trace-speedup {config.trace_speedup:g}: conversations have no recorded times; "
            "leave it out, or give --request-rate"
        )
    if config.burst_trace_path is not None and not config.use_burst_trace:
        raise UsageError(
            f"--burst-trace-path {config.burst_trace_path}: is not used without --use-burst-trace; give both"
        )
    if config.trace is not None:
        kind, _, path = config.trace.partition(":")
        if not kind or not path:
            raise UsageError(
                f"--trace {config.trace}: not of the form FORMAT:PATH; write it like --trace "
                "mooncake:trace.jsonl"
            )


def _check_tiers(config: "Config") -> None:
    if config.gpu_tier == "off" and config.gpu_mem_gb:
        raise UsageError(
            f"--gpu-tier off contradicts --gpu-mem-gb {config.gpu_mem_gb:g}; leave one of them out"
        )
    if config.gpu_tier == "modelled" and not config.gpu_mem_gb:
        raise UsageError("--gpu-tier modelled: has no size; give --gpu-mem-gb as well")
    if config.gpu_tier == "real" and config.gpu_mem_gb == 0:
        raise UsageError("--gpu-tier real contradicts --gpu-mem-gb 0; leave one of them out")
    if len(set(config.gpu_device)) < len(config.gpu_device):
        raise UsageError(
            f"--gpu-device {' '.join(map(str, config.gpu_device))}: one is named twice; name each once"
        )
    if config.num_gpus is not None and config.num_gpus != len(config.gpu_device):
        raise UsageError(
            f"--num-gpus {config.num_gpus} contradicts --gpu-device {' '.join(map(str, config.gpu_device))}; "
            "leave one of them out"
        )
    if config.num_gpus is not None and config.tensor_parallel > config.num_gpus:
        raise UsageError(
            f"--tensor-parallel {config.tensor_parallel}: there are only --num-gpus {config.num_gpus}; "
            f"give at least --num-gpus {config.tensor_parallel}"
        )
    if config.storage_tier == "off":
        if config.storage_capacity_gb is not None:
            raise UsageError(
                f"--storage-tier off contradicts --storage-capacity-gb {config.storage_capacity_gb:g}; "
                "leave one of them out"
            )
        if config.cache_dir is not None:
            raise UsageError(
                f"--storage-tier off contradicts --cache-dir {config.cache_dir[0]}; leave one of them out"
            )
        if not config.gpu_bytes and not config.cpu_bytes:
            raise UsageError(
                "--storage-tier off leaves no tier, as the GPU and DRAM tiers are 0; "
                "give --cpu-mem-gb or --gpu-mem-gb, or --storage-tier on"
            )
    if config.cache_dir is not None:
        if not config.cache_dir:
            raise UsageError("--cache-dir: the list is empty; name a directory or leave it out")
        for path in config.cache_dir:
            if config.cache_dir.count(path) > 1:
                raise UsageError(f"--cache-dir {path}: given twice; name each directory once")


def last_tier(config: "Config") -> str:
    """The slowest tier in use, by the name that a person knows: what it drops is gone."""
    if config.storage_tier == "on":
        return "storage"
    return "DRAM" if config.cpu_bytes else "GPU"


def check_fit(config: "Config", storage_bytes: int | None, ranks: int = 1) -> None:
    """Refuse a run whose largest entry the last tier cannot hold (C1); None means no known limit.

    ranks: so many divide the storage capacity that was given, and storage_bytes is the part of one.
    """
    if storage_bytes is None or not config.context_is_known:
        return
    if config.storage_tier == "on":
        flag, limit, usable = "--storage-capacity-gb", storage_bytes, storage_bytes
    else:
        flag = "--cpu-mem-gb" if config.cpu_bytes else "--gpu-mem-gb"
        limit = config.cpu_bytes or config.gpu_bytes
        usable = int(limit * MEMORY_USABLE_SHARE)
    needed = block_padded(config.largest_entry_bytes)
    if needed > usable:
        enough = math.ceil(needed / (usable / limit)) if usable else needed
        divided = f" (divided among {ranks} ranks)" if ranks > 1 else ""
        raise UsageError(
            f"{flag} {ranks * limit / GIB:g}: the {last_tier(config)} tier can use {size_text(usable)} of it"
            f"{divided}, but the largest entry takes {size_text(needed)} "
            f"({config.largest_entry_tokens:,} tokens of {config.model}); give {flag} "
            f"{gb_flag_value(ranks * enough)} or more, or a smaller --model"
        )


def _check_autoscaling(config: "Config") -> None:
    if not config.enable_autoscaling:
        return
    if config.duration is None or config.max_requests is not None:
        raise UsageError(
            "--enable-autoscaling: a search has no number of requests to end after; give --duration SECONDS "
            "and leave --max-requests out"
        )
    timed = config.recording is not None and config.recording[0] != CONVERSATIONS
    if timed and config.arrival == "closed":
        raise UsageError(
            "--arrival closed: users who wait for answers do not follow the speed of a recording, which is "
            "what --enable-autoscaling turns; leave it out"
        )
    if config.autoscaler_mode == "qos" and config.storage_tier == "off":
        raise UsageError(
            "--autoscaler-mode qos: watches the storage tier, but --storage-tier is off; "
            "use --autoscaler-mode slo or capacity, or --storage-tier on"
        )
    if config.autoscaler_mode == "qos" and config.io_model == "prefix":
        raise UsageError(
            "--autoscaler-mode qos: judges single reads, but with --io-model prefix the many blocks of one "
            "request wait for each other; use --autoscaler-mode slo --slo-latency storage-ttft, or capacity"
        )
    if config.autoscaler_mode == "qos" and config.prefill_only:
        raise UsageError(
            "--autoscaler-mode qos: judges storage reads, but --prefill-only makes none; "
            "use --autoscaler-mode capacity"
        )
    if not config.min_users <= config.num_users <= config.max_users:
        raise UsageError(
            f"--num-users {config.num_users}: outside of --min-users {config.min_users} to --max-users "
            f"{config.max_users}; start the search between them"
        )
