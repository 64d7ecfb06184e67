"""Which backend stands behind each tier: real ones under the real clock, modelled ones in virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvspill.config import Config
from kvspill.records import Tier
from kvspill.run.build import usable_bytes
from kvspill.storage.base import Backend
from kvspill.storage.modelled import ModelledBackend
from kvspill.storage.profiles import DEFAULT_PRESET, NULL, PRESETS, load_profile
from kvspill.world import World

if TYPE_CHECKING:
    from kvspill.storage.buffers import DataPlane


def open_backends(
    config: Config, world: World, limits: dict[Tier, int], roots: Sequence[Path], simulated: bool
) -> dict[Tier, Backend]:
    """A backend for every tier of the run."""
    if simulated:
        return {tier: modelled_backend(config, world, tier) for tier in limits}
    from kvspill.storage.buffers import DataPlane

    # One source of data for all: an entry demoted from memory carries the stamps that files expect.
    plane = DataPlane(config.io_size, max(config.io_threads, config.write_threads))
    return {tier: _real(config, world, tier, limit, roots, plane) for tier, limit in limits.items()}


def modelled_backend(config: Config, world: World, tier: Tier) -> Backend:
    """A device model in the tier's place, as fast as the profile says."""
    if tier is Tier.STORAGE and config.storage_backend == "null":
        return ModelledBackend("null", PRESETS["null"][tier], world.now_ns)
    model = load_profile(config.device_profile or DEFAULT_PRESET)[tier]
    if tier is Tier.STORAGE and config.engine is not None and model is not NULL:
        # A named engine keeps no more in flight than it has threads.
        threads = config.io_threads + config.write_threads
        model = replace(model, concurrency=min(model.concurrency or threads, threads))
    return ModelledBackend("modelled", model, world.now_ns)


def _real(
    config: Config, world: World, tier: Tier, limit_bytes: int, roots: Sequence[Path], plane: "DataPlane"
) -> Backend:
    """The real thing; there is none for the GPU yet, so that tier is modelled and labelled so (L6)."""
    if tier is Tier.GPU or (tier is Tier.STORAGE and config.storage_backend != "files"):
        return modelled_backend(config, world, tier)
    if tier is Tier.CPU:
        from kvspill.storage.dram import DramBackend

        return DramBackend(usable_bytes(tier, limit_bytes), config.verify, plane=plane)
    from kvspill.storage.files import FilesBackend, FilesOptions

    options = FilesOptions(
        io_size=config.io_size,
        io_threads=config.io_threads,
        direct=config.direct,
        sync=config.sync,
        verify=config.verify,
        io_engine=config.io_engine,
    )
    if config.layout == "files" and config.write_threads == 0:
        return FilesBackend(roots, options, plane=plane)
    from kvspill.storage.layouts import Layout, make_layout

    unit_bytes = config.block_tokens * config.bytes_per_token
    layout = Layout(config.layout, unit_bytes, limit_bytes, config.write_threads)
    return make_layout(layout, roots, options, plane)
