"""The dram backend as a plug-in: an arena of the tier's usable memory."""

from kvspill.plugins import Need, Plugin
from kvspill.storage.base import Backend, BackendContext


def make(context: BackendContext) -> Backend:
    """An arena of the tier's usable bytes."""
    from kvspill.storage.dram import DramBackend

    settings = context.settings
    return DramBackend(
        context.usable_bytes,
        settings["verify"],
        context.clock_ns,
        context.plane,
        settings["dram_threads"],
    )


PLUGIN = Plugin(
    name="dram",
    help="an arena in memory: a read is a copy out, a write a copy in",
    make=make,
    needs=frozenset({Need.MEMORY}),
)
