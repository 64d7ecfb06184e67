"""The gpu backend as a plug-in: an arena in the memory of one or several GPUs."""

from kvspill.machine.gpu import why_unusable
from kvspill.plugins import Need, Plugin
from kvspill.storage.base import Backend, BackendContext


def make(context: BackendContext) -> Backend:
    """An arena of the tier's usable bytes, spread over the GPUs that the run was given."""
    from kvspill.storage.gpu.backend import GpuBackend

    settings = context.settings
    return GpuBackend(
        context.usable_bytes,
        settings["gpu_device"],
        settings["verify"],
        context.clock_ns,
        context.plane,
        context.host_memory,
    )


PLUGIN = Plugin(
    name="gpu",
    help="an arena in GPU memory: a hit is a copy on the card, a put a copy over PCIe",
    make=make,
    needs=frozenset({Need.DEVICE, Need.MEMORY}),
    ready=why_unusable,
)
