"""The columns of result tables: run parameters and figures under the titles that analyses look for."""

import math
from typing import Any

from kvspill.report.unused import without_storage_io
from kvspill.result.metrics.catalog import shown_at
from kvspill.result.metrics.metric import Place
from kvspill.result.schema import Result

STORAGE_THROUGHPUT = "storage_throughput_tokens_per_sec"
WALL_THROUGHPUT = "avg_throughput_tokens_per_sec"
NVME_THROUGHPUT = "nvme_throughput"
STORAGE_SPEED = "storage_busy_gib_per_sec"
DECODE_BYTES = "decode_bytes_read_gb"
IO_TIME = "total_storage_io_time"


COLUMNS = shown_at(Place.COLUMN)
"""The first 25 are the columns of the existing summaries, with their titles."""

COLUMN = {column.key: column for column in COLUMNS}

PARAMETERS = {
    "model": "Model",
    "cpu_mem_gb": "CPU Memory (GB)",
    "max_concurrent_allocs": "Max Concurrent Allocs",
    "generation_mode": "Generation Mode",
    "num_users": "Users",
    "gpu_mem_gb": "GPU Memory (GB)",
    "storage_capacity_gb": "Storage Capacity (GB)",
    "duration": "Duration (s)",
    "max_requests": "Max Requests",
    "seed": "Seed",
    "arrival": "Arrival",
    "io_model": "I/O Model",
    "engine": "Engine",
    "placement": "Placement",
    "eviction_policy": "Eviction Policy",
    "tensor_parallel": "Tensor Parallel",
    "storage_backend": "Storage Backend",
    "workload_preset": "Workload Preset",
    "device_profile": "Device Profile",
}
"""Settings of a run that have a column, with its title."""

OTHER_SETTINGS = "Other Settings"
"""Title of the column with every other setting that is not at its default, as JSON."""

CONFIGURATION = ("model", "cpu_mem_gb", "max_concurrent_allocs", "generation_mode", "num_users")
"""What makes two runs the same configuration where only tables are at hand."""

SHAPING = (
    *("duration", "max_requests", "arrival", "gpu_mem_gb", "io_model", "engine"),
    *("tensor_parallel", "workload_preset"),
)
"""Settings that change what a run does, whatever the device; older tables don't have them."""


def finite(value: Any) -> float | None:
    """A usable number, or None: booleans, text, NaN and infinities are not figures."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def of_no_storage(title: str, result: Result) -> bool:
    """Whether a figure speaks of storage where a result has none, or used none: its I/O is that of memory."""
    if not (speaks_of_storage(title) and result.tiers):
        return False
    return result.tier("storage") is None or without_storage_io(result)


def speaks_of_storage(title: str) -> bool:
    return "storage" in title.lower() or title.startswith("NVMe")


def figures(result: Result) -> dict[str, float]:
    """Every figure of the columns that a result holds, by its key."""
    found = {}
    for column in COLUMNS:
        value = result.value(column.name)
        number = finite(value.get(column.stat) if isinstance(value, dict) else value)
        if number is not None:
            found[column.key] = number
    return with_derived(found)


def with_derived(found: dict[str, float]) -> dict[str, float]:
    """Adds what older results leave to the reader: rates over the summed storage I/O time."""
    io_seconds = found.get(IO_TIME)
    if not io_seconds:
        return found
    for name, amount in (
        (STORAGE_THROUGHPUT, "total_tokens"),
        ("storage_requests_per_sec", "total_requests"),
    ):
        if name not in found and amount in found:
            found[name] = found[amount] / io_seconds
    return found
