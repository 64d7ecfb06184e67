"""Settles what kind of GPU tier a run has, and its size, by what this machine has (L6, G2)."""

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.machine.gpu import DeviceError, card_count, why_unusable
from kvspill.records import GIB
from kvspill.storage.gpu.cuda import look_at_card

DEFAULT_GIB = 16.0
FREE_SHARE = 0.8
"""Of the memory that is free on a card, the default takes no more than this."""


def settle_gpu(config: Config, simulated: bool) -> Config:
    """The configuration with its GPU tier as it will be: real, modelled or none."""
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
    try:
        free_bytes = min(look_at_card(index).free_bytes for index in config.gpu_device)
    except DeviceError as error:
        raise UsageError(f"--gpu-tier {config.gpu_tier}: {error}; use --gpu-tier modelled or off") from error
    return min(DEFAULT_GIB, int(free_bytes * FREE_SHARE / GIB * 10) / 10)
