"""Settles what a configuration leaves open: the GPU tier, the device profile, --io-size, time per token."""

from pathlib import Path

from kvspill.config import Config
from kvspill.config.blocks import moves_whole_blocks, whole_block_io_size
from kvspill.config.origins import was_given
from kvspill.errors import UsageError
from kvspill.machine.gpu import card_count, why_unusable
from kvspill.plugins import LISTS_BLOCKS
from kvspill.records import GIB
from kvspill.result.reading import engine_figures, read_json
from kvspill.storage.gpu.cuda import look_at_card
from kvspill.storage.profiles import DEFAULT_PRESET
from kvspill.workload.registry import listed_block_tokens, recording

DEFAULT_GPU_GIB = 16.0
GPU_FREE_SHARE = 0.8
"""Of the memory that is free on a card, the default takes no more than this."""
_CALIBRATE = "--calibrate-from"


def settled(config: Config, simulated: bool) -> Config:
    """The configuration as the run will have it."""
    if simulated and config.device_profile is None:
        # Who reads the result should see which device it is of.
        config = config.model_copy(update={"device_profile": DEFAULT_PRESET})
    return settle_generation(settle_io_size(settle_gpu(config, simulated)))


def settle_gpu(config: Config, simulated: bool) -> Config:
    """With its GPU tier as it will be: real, modelled or none (L6, G2)."""
    if simulated or config.gpu_tier in ("modelled", "off") or config.gpu_mem_gb == 0:
        return _without(config, simulated, "no GPU is used; give --gpu-tier real, or --load-to host")
    why_not = why_unusable()
    if why_not is not None:
        if config.gpu_tier == "real":
            raise UsageError(f"--gpu-tier real: {why_not}")
        return _without(config, simulated, why_not)
    _check_devices(config)
    size_gib = config.gpu_mem_gb if config.gpu_mem_gb is not None else _default_gib(config)
    load_to = "gpu" if config.load_to == "auto" else config.load_to
    return config.model_copy(update={"gpu_tier": "real", "gpu_mem_gb": size_gib, "load_to": load_to})


def _without(config: Config, simulated: bool, why: str) -> Config:
    """Reads can't end on a GPU where none is used."""
    if config.load_to == "gpu" and not simulated:
        raise UsageError(f"--load-to gpu: {why}")
    return config


def _check_devices(config: Config) -> None:
    count = card_count()
    missing = [index for index in config.gpu_device if index >= count]
    if missing and config.num_gpus is not None:
        raise UsageError(f"--num-gpus {config.num_gpus}: the driver sees {count}; give at most {count}")
    if missing:
        there = "GPU 0 only" if count == 1 else f"GPUs 0 to {count - 1}"
        raise UsageError(f"--gpu-device {missing[0]}: this machine has {there}; name one of those")


def _default_gib(config: Config) -> float:
    free_bytes = min(look_at_card(index).free_bytes for index in config.gpu_device)
    return min(DEFAULT_GPU_GIB, int(free_bytes * GPU_FREE_SHARE / GIB * 10) / 10)


def settle_io_size(config: Config) -> Config:
    """With an --io-size that holds a block of the recording, for an engine that moves it by one call."""
    replayed = recording(config)
    if replayed is None or LISTS_BLOCKS not in replayed.format.can:
        return config
    own = whole_block_io_size(config.kv.block(config.block_tokens))
    if was_given(config, "io_size") or config.io_size != own or not moves_whole_blocks(config.engine):
        # Given beside the engine, it wins.
        return config
    if not (replayed.path.is_file() or replayed.path.is_dir()):
        # A stream can be read only once.
        return config
    tokens = listed_block_tokens(config, replayed)
    if tokens is None:
        return config
    return config.model_copy(update={"io_size": whole_block_io_size(config.kv.block(tokens))})


def settle_generation(config: Config) -> Config:
    """With the time per token at which all servers together are as fast as a real engine was.

    An engine generates for many requests at once, and each of them slower for it: with n servers, each takes
    n times the engine's time per token.
    """
    path = config.calibrate_from
    if path is None or config.generation_mode != "deterministic":
        return config
    if was_given(config, "decode_ms_per_token"):
        raise UsageError(f"{_CALIBRATE} {path}: contradicts --decode-ms-per-token; give one of them")
    speed = tokens_per_sec(Path(path))
    return config.model_copy(update={"decode_ms_per_token": 1000 * config.server_count / speed})


def counts_prompts(path: Path) -> bool:
    """Whether the tokens of an engine's result are those of prompts and answers, as vLLM counts them."""
    document = read_json(path)
    return isinstance(document, dict) and "total_num_tokens" in document


def tokens_per_sec(path: Path) -> float:
    """What the engine generated in a second."""
    figures = engine_figures(read_json(path)) or {}
    speed = figures.get("avg_throughput_tokens_per_sec", 0.0)
    if speed <= 0:
        raise UsageError(
            f"{_CALIBRATE} {path}: no benchmark result of vLLM or LMCache with tokens_per_second above 0; "
            "name the file that `vllm bench throughput --output-json` wrote"
        )
    return speed
