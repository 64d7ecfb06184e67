"""Which backend stands behind each tier: real ones under the real clock, modelled ones in virtual time."""

from pathlib import Path

from kvspill.config import Config
from kvspill.records import Tier
from kvspill.storage.base import Backend
from kvspill.storage.modelled import ModelledBackend
from kvspill.storage.profiles import DEFAULT_PRESET, PRESETS, load_profile
from kvspill.suite.assembly import usable_bytes
from kvspill.world import World


def modelled_backend(config: Config, world: World, tier: Tier) -> Backend:
    """A device model in the tier's place, as fast as the profile says."""
    if tier is Tier.STORAGE and config.storage_backend == "null":
        return ModelledBackend("null", PRESETS["null"][tier], world.now_ns)
    profile = load_profile(config.device_profile or DEFAULT_PRESET)
    return ModelledBackend("modelled", profile[tier], world.now_ns)


def real_backend(config: Config, world: World, tier: Tier, limit_bytes: int) -> Backend:
    """The real thing; there is none for the GPU yet, so that tier is modelled and labelled so (L6)."""
    if tier is Tier.GPU or (tier is Tier.STORAGE and config.storage_backend != "files"):
        return modelled_backend(config, world, tier)
    if tier is Tier.CPU:
        from kvspill.storage.dram import DramBackend

        return DramBackend(usable_bytes(tier, limit_bytes), config.verify)
    from kvspill.storage.files import FilesBackend, FilesOptions

    options = FilesOptions(
        io_size=config.io_size,
        io_threads=config.io_threads,
        direct=config.direct,
        sync=config.sync,
        verify=config.verify,
        io_engine=config.io_engine,
    )
    return FilesBackend(cache_roots(config), options)


def cache_roots(config: Config) -> list[Path]:
    """Where the run directories are made; by default in the current directory."""
    return [Path(root) for root in config.cache_dir or (".",)]


def open_backends(
    config: Config, world: World, limits: dict[Tier, int], simulated: bool
) -> dict[Tier, Backend]:
    """A backend for every tier of the run."""
    return {
        tier: modelled_backend(config, world, tier)
        if simulated
        else real_backend(config, world, tier, limit_bytes)
        for tier, limit_bytes in limits.items()
    }
