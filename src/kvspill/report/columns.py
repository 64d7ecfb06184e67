"""The columns of result tables: run parameters and figures under the titles that analyses look for."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Better = Literal["higher", "lower", "neither"]

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


def _latencies(title: str, name: str, better: Better) -> Iterator[Column]:
    for stat in ("mean", "p50", "p95", "p99"):
        label = "Mean" if stat == "mean" else stat.upper()
        yield Column(f"{title} {label} (ms)", f"{name}.{stat}", "ms", better, (name, stat))


def _cache(title: str, name: str, unit: str, better: Better, digits: int = 2) -> Column:
    return Column(title, name, unit, better, ("cache_stats", name), digits)


COLUMNS: tuple[Column, ...] = (
    Column(
        "Storage Throughput (tokens/sec)",
        STORAGE_THROUGHPUT,
        "tokens/s",
        "higher",
        ("storage_throughput_tokens_per_sec",),
    ),
    Column(
        "Storage Requests/sec",
        "storage_requests_per_sec",
        "requests/s",
        "higher",
        ("storage_requests_per_sec",),
        4,
    ),
    Column("Total I/O Time (s)", IO_TIME, "s", "neither", ("", "total_storage_io_latency")),
    Column(
        "Wall-Clock Throughput (tokens/sec)",
        WALL_THROUGHPUT,
        "tokens/s",
        "higher",
        ("avg_throughput_tokens_per_sec",),
    ),
    Column(
        "Wall-Clock Requests/sec", "requests_per_second", "requests/s", "higher", ("requests_per_second",), 3
    ),
    Column("Total Tokens", "total_tokens", "tokens", "higher", ("total_tokens",), 0),
    Column("Total Requests", "total_requests", "requests", "higher", ("total_requests",), 0),
    *_latencies("E2E Latency", "end_to_end_latency_ms", "lower"),
    *_latencies("Gen Latency", "generation_latency_ms", "neither"),
    *_latencies("Storage Latency", "storage_io_latency_ms", "lower"),
    _cache("Cache Hit Rate", "cache_hit_rate", "ratio", "higher", 4),
    _cache("Read/Write Ratio", "read_write_ratio", "ratio", "neither"),
    _cache("Total Read (GB)", "total_read_gb", "GiB", "higher"),
    _cache("Total Write (GB)", "total_write_gb", "GiB", "higher"),
    _cache("Prefill Bytes Written (GB)", "prefill_bytes_written_gb", "GiB", "higher"),
    _cache("Decode Bytes Read (GB)", DECODE_BYTES, "GiB", "higher"),
    Column("NVMe Throughput (tokens/sec)", "nvme_throughput", "tokens/s", "higher", ("nvme_throughput",)),
    _cache("Storage Read Bandwidth (GiB/s)", "tier_storage_read_bandwidth_gbps", "GiB/s", "higher", 3),
    _cache("Storage Write Bandwidth (GiB/s)", "tier_storage_write_bandwidth_gbps", "GiB/s", "higher", 3),
    _cache("NVMe Read P95 (ms)", "nvme_read_p95_ms", "ms", "lower"),
    _cache("NVMe Write P95 (ms)", "nvme_write_p95_ms", "ms", "lower"),
    _cache("NVMe Read Device P95 (ms)", "nvme_read_device_p95_ms", "ms", "lower"),
    _cache("NVMe Write Device P95 (ms)", "nvme_write_device_p95_ms", "ms", "lower"),
    _cache("CPU Read P95 (ms)", "cpu_read_p95_ms", "ms", "lower"),
    _cache("GPU Read P95 (ms)", "gpu_read_p95_ms", "ms", "lower"),
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
