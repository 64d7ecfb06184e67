"""What iostat would say of the window: utilisation, await, queue and merges, from the kernel's counters."""

from collections.abc import Mapping
from typing import Any

from kvspill.result.measured import ratio


def device_load(counters: Mapping[str, Any] | None, seconds: float) -> dict[str, float | None] | None:
    """Figures of all devices behind the storage tier together; None where the kernel counts none."""
    if not counters or "busy_ms" not in counters:
        return None
    devices = max(1, len(counters.get("devices", ())))
    load: dict[str, float | None] = {
        "utilisation": ratio(counters["busy_ms"] / 1000 / devices, seconds),
        "queue_size": ratio(counters["queue_ms"] / 1000, seconds),
    }
    for verb, moved in (("read", "read_bytes"), ("write", "written_bytes")):
        requests = counters[f"{verb}s"]
        merged = counters.get(f"{verb}s_merged")
        load[f"{verb}_await_ms"] = ratio(counters[f"{verb}_ms"], requests)
        load[f"{verb}_requests_per_sec"] = ratio(requests, seconds)
        load[f"{verb}_request_bytes"] = ratio(counters[moved], requests)
        load[f"{verb}_merge_share"] = None if merged is None else ratio(merged, merged + requests)
    return load
