"""Which backend stands behind each tier: plug-ins by name, or by the scheme of the storage's address."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from kvspill.config import Config
from kvspill.config.plugged import usable_plugins
from kvspill.errors import KvspillError
from kvspill.plugins import VIRTUAL, Found, Kind, Plugin
from kvspill.records import Tier
from kvspill.run.build import usable_bytes
from kvspill.run.preflight import claimed_bytes
from kvspill.run.stores import own_addresses, ranks_at_stores
from kvspill.storage.addresses import choose_storage
from kvspill.storage.base import Backend, BackendContext
from kvspill.storage.base import Progress as Preparing
from kvspill.storage.foreign import ForeignBackend
from kvspill.world import World

_MODEL = "modelled"
_PATIENCE_SECONDS = 5.0
_MEMORY: Mapping[Tier, str] = MappingProxyType({Tier.GPU: "gpu", Tier.CPU: "dram"})


def open_backends(
    config: Config, world: World, limits: Mapping[Tier, int], roots: Sequence[Path], simulated: bool
) -> dict[Tier, Backend]:
    """A backend for every tier of the run."""
    found = usable_plugins()[Kind.BACKEND]
    settings = MappingProxyType(dict(config))
    plane = None
    if not simulated:
        from kvspill.storage.buffers import DataPlane

        # One source of data for all: an entry demoted from memory carries the stamps that files expect.
        plane = DataPlane(config.io_size, max(config.io_threads, config.write_threads))
    backends: dict[Tier, Backend] = {}
    # The last tier first: what it keeps objects in must be known to the one above that copies there.
    for tier, limit_bytes in reversed(list(limits.items())):
        plugin = _plugin(found, config, tier, simulated)
        context = BackendContext(
            tier=tier,
            clock_ns=world.now_ns,
            limit_bytes=limit_bytes,
            usable_bytes=usable_bytes(tier, limit_bytes),
            unit_bytes=config.kv.block(config.block_tokens),
            settings=settings,
            roots=tuple(roots) if tier is Tier.STORAGE else (),
            addresses=own_addresses(config) if tier is Tier.STORAGE else (),
            plane=plane,
            host_memory=tuple(memory for below in backends.values() for memory in below.host_memory()),
            options=config.options_of(plugin),
            claimed_bytes=claimed_bytes(config, limit_bytes) if tier is Tier.STORAGE else None,
            ranks=ranks_at_stores(config) if tier is Tier.STORAGE and not simulated else 1,
        )
        try:
            made = plugin.start(context, Backend, _where(config))
            backends[tier] = made if plugin.is_ours else ForeignBackend(made, plugin, world.now_ns)
        except BaseException:
            for other in backends.values():
                other.close_now()
            raise
    if Tier.GPU in backends and config.load_to == "gpu":
        landing = backends[Tier.GPU].landing()
        if landing is not None and Tier.STORAGE in backends:
            backends[Tier.STORAGE].deliver_to(landing)
    return {tier: backends[tier] for tier in limits}


def _where(config: Config) -> str:
    return f" at {' '.join(config.cache_dir)}" if config.cache_dir else ""


@contextmanager
def blamed(config: Config, tier: Tier, simulated: bool) -> Iterator[None]:
    """What a backend of another package raises is said to be its error, not ours."""
    plugin = _plugin(usable_plugins()[Kind.BACKEND], config, tier, simulated)
    with plugin.blamed(_where(config)):
        yield


async def prepare_storage(
    backend: Backend, preparing: Preparing, say: Callable[[str], None], max_stall_seconds: float
) -> None:
    """Let the storage get ready. Where nothing moves on for so long, its device hangs: nobody waits on."""
    clock = asyncio.get_running_loop().time
    began = moved = clock()

    def noted(what: str, done: int, total: int) -> None:
        nonlocal moved
        moved = clock()
        preparing(what, done, total)

    getting_ready = asyncio.ensure_future(backend.prepare(noted))
    try:
        await asyncio.wait([getting_ready], timeout=min(_PATIENCE_SECONDS, max_stall_seconds))
        if not getting_ready.done() and moved == began:
            say(f"the storage is not ready yet; it is given up after {max_stall_seconds:g} s (--max-stall)")
        while not getting_ready.done():
            left = moved + max_stall_seconds - clock()
            if left <= 0:
                raise KvspillError(
                    f"--max-stall {max_stall_seconds:g}: the storage was not ready after so many seconds; "
                    "check the device and the kernel log"
                )
            await asyncio.wait([getting_ready], timeout=left)
        getting_ready.result()
    finally:
        getting_ready.cancel()


def _plugin(found: Found, config: Config, tier: Tier, simulated: bool) -> Plugin:
    if tier is Tier.GPU and config.gpu_tier != "real":
        # Without a card that can be used, the tier is modelled and labelled so (L6).
        chosen = found.get(_MODEL, "--gpu-tier")
    elif tier is not Tier.STORAGE:
        chosen = found.get(_MEMORY[tier], f"--{tier.value}-mem-gb")
    elif simulated:
        # Nothing is stored anywhere, so that addresses have no say.
        chosen = found.get(config.storage_backend, "--storage-backend")
    else:
        chosen = choose_storage(found, config.storage_backend, config.cache_dir)
    return found.get(_MODEL, "simulate") if simulated and VIRTUAL not in chosen.can else chosen
