"""The dram backend as a plug-in: an arena of the tier's usable memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.machine.processors import memory_nodes, nodes_near
from kvspill.plugins import Need, Plugin
from kvspill.storage.base import Backend, BackendContext


def make(context: BackendContext) -> Backend:
    """An arena of the tier's usable bytes."""
    from kvspill.storage.arena import page_bytes_for
    from kvspill.storage.dram import DramBackend

    settings = context.settings
    return DramBackend(
        context.usable_bytes,
        settings["verify"],
        context.clock_ns,
        context.plane,
        settings["dram_threads"],
        nodes_of(settings),
        page_bytes_for(context.unit_bytes, settings["io_size"]),
    )


def nodes_of(settings: Mapping[str, Any]) -> Sequence[frozenset[int]]:
    """Below a real GPU tier the nodes of its cards: what they give up comes over their links."""
    nodes = memory_nodes()
    if len(nodes) == 1 or settings["gpu_tier"] != "real" or not settings["gpu_mem_gb"]:
        return nodes
    from kvspill.storage.gpu.cuda import look_at_card

    return nodes_near([look_at_card(index).pci_address for index in settings["gpu_device"]])


PLUGIN = Plugin(
    name="dram",
    help="an arena in memory: a read is a copy out, a write a copy in",
    make=make,
    needs=frozenset({Need.MEMORY}),
)
