"""Metrics of a real GPU tier: what its memory and its link move while they are at it."""

from functools import partial

from kvspill.records import GIB, Tier
from kvspill.result.measured import Measured
from kvspill.result.metrics.metric import Metric, Value, cache_stat


def _device_speed(m: Measured, way: str) -> Value:
    counters = next((facts.counters for facts in m.facts.tiers if facts.tier is Tier.GPU), {})
    seconds = counters.get(f"{way}_device_seconds")
    nbytes = counters.get(f"{way}_bytes")
    if not isinstance(seconds, int | float) or not isinstance(nbytes, int | float) or seconds <= 0:
        return None
    return nbytes / GIB / seconds


_WAYS = {
    "gpu_hbm_read": ("hbm_read", "hits, copied inside the GPU's memory"),
    "gpu_pcie_in": ("pcie_in", "puts, copied from registered host memory to the GPU"),
    "gpu_pcie_load": ("pcie_load", "reads of the storage, copied on to the GPU"),
    "gpu_pcie_out": ("pcie_out", "demotions, copied from the GPU to the host"),
}

GPU_METRICS: tuple[Metric, ...] = tuple(
    cache_stat(
        f"{name}_device_gib_per_sec",
        "GiB/s",
        f"bytes of {what} / the time between the events around them on their stream, over the whole run",
        "The speed of the card or its link itself, beside the tier's bandwidth over wall time.",
        "Does not show idle time. Modelled tiers have none: null.",
        partial(_device_speed, way=way),
    )
    for name, (way, what) in _WAYS.items()
)
