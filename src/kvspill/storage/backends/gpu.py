"""The gpu backend as a plug-in: an arena in the memory of one or several GPUs."""

from kvspill.machine.gpu import why_unusable
from kvspill.plugins import Need, Plugin
from kvspill.storage.base import Backend, BackendContext


def make(context: BackendContext) -> Backend:
    """An arena of the tier's usable bytes, spread over the GPUs that the run was given."""
    from kvspill.storage.gpu.backend import GpuBackend, Staged

    settings = context.settings
    # With a DRAM tier between, entries sink into it by one copy and need no buffers.
    lanes = 0 if settings["cpu_mem_gb"] else settings["write_threads"] or settings["io_threads"]
    return GpuBackend(
        context.usable_bytes,
        settings["gpu_device"],
        settings["verify"],
        context.clock_ns,
        context.plane,
        context.host_memory,
        Staged(lanes, settings["io_size"]),
        limit_bytes=context.limit_bytes,
    )


PLUGIN = Plugin(
    name="gpu",
    help="an arena in GPU memory: a hit is a copy on the card, a put a copy over PCIe",
    make=make,
    needs=frozenset({Need.DEVICE, Need.MEMORY}),
    ready=why_unusable,
)
