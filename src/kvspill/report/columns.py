"""The columns of result tables: run parameters and figures under the titles that analyses look for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvspill.result.catalog import shown_at
from kvspill.result.metrics import Better, Figure, Place

STORAGE_THROUGHPUT = "storage_throughput_tokens_per_sec"
WALL_THROUGHPUT = "avg_throughput_tokens_per_sec"
DECODE_BYTES = "decode_bytes_read_gb"
IO_TIME = "total_storage_io_time"


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a run: its title in tables, its metric, and where it stands in a result's JSON."""

    title: str
    name: str
    unit: str
    better: Better
    path: tuple[str, ...]
    """Below `summary`, or from the top where the first part is empty."""
    digits: int = 2


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of a run: its title in tables and its name in the configuration."""

    title: str
    name: str


def _path(figure: Figure) -> tuple[str, ...]:
    if figure.name == IO_TIME:
        # Where kv-cache.py has it, and so do we.
        return ("", "total_storage_io_latency")
    inside = () if figure.metric.block == "summary" else (figure.metric.block,)
    return (*inside, figure.name, *((figure.stat,) if figure.stat else ()))


COLUMNS: tuple[Column, ...] = tuple(
    Column(
        figure.title,
        figure.key,
        figure.metric.unit,
        figure.metric.better,
        _path(figure),
        figure.digits,
    )
    for figure in shown_at(Place.COLUMN)
)
"""The first 25 are the columns of the existing summaries, with their titles."""

COLUMN = {column.name: column for column in COLUMNS}

PARAMETERS: tuple[Parameter, ...] = (
    Parameter("Model", "model"),
    Parameter("CPU Memory (GB)", "cpu_mem_gb"),
    Parameter("Max Concurrent Allocs", "max_concurrent_allocs"),
    Parameter("Generation Mode", "generation_mode"),
    Parameter("Users", "num_users"),
    Parameter("GPU Memory (GB)", "gpu_mem_gb"),
    Parameter("Storage Capacity (GB)", "storage_capacity_gb"),
    Parameter("Duration (s)", "duration"),
    Parameter("Max Requests", "max_requests"),
    Parameter("Seed", "seed"),
    Parameter("Arrival", "arrival"),
    Parameter("I/O Model", "io_model"),
    Parameter("Engine", "engine"),
    Parameter("Placement", "placement"),
    Parameter("Eviction Policy", "eviction_policy"),
    Parameter("Tensor Parallel", "tensor_parallel"),
    Parameter("Storage Backend", "storage_backend"),
    Parameter("Workload Preset", "workload_preset"),
    Parameter("Device Profile", "device_profile"),
)

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


def _look_up(document: Any, path: tuple[str, ...]) -> float | None:
    for part in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(part)
    return finite(document)


def figures(result: Mapping[str, Any]) -> dict[str, float]:
    """Every figure that a result (ours, or one of the existing program's) holds, by metric name."""
    summary = result.get("summary")
    found = {}
    for column in COLUMNS:
        at_top = column.path[0] == ""
        value = _look_up(result if at_top else summary, column.path[1:] if at_top else column.path)
        if value is not None:
            found[column.name] = value
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
