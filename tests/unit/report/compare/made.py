"""Runs and files made by hand for the tests of comparisons."""

import json
from pathlib import Path
from typing import Any

from kvspill.report.columns import DECODE_BYTES, STORAGE_THROUGHPUT, WALL_THROUGHPUT
from kvspill.report.compare.run import KVSPILL, Run

SHARED = Path(__file__).parents[5] / "shared" / "data"


def run(name: str = "r", value: float = 100.0, **changes: Any) -> Run:
    """A run whose three scores are all `value`."""
    config = {
        "model": "m",
        "cpu_mem_gb": 0,
        "max_concurrent_allocs": 0,
        "generation_mode": "none",
        "num_users": 10,
        **changes.pop("config", {}),
    }
    fields: dict[str, Any] = {
        "name": name,
        "group": name,
        "kind": KVSPILL,
        "config": config,
        "values": {STORAGE_THROUGHPUT: value, WALL_THROUGHPUT: value, DECODE_BYTES: value},
    }
    return Run(**{**fields, **changes})


def legacy(requests: int = 549, tokens: int = 1000, io_seconds: float = 10.0) -> dict[str, Any]:
    """The shape of kv-cache.py's results, as far as comparisons read it."""
    return {
        "requests_completed": requests,
        "total_storage_io_latency": io_seconds,
        "seed": 42,
        "summary": {
            "total_requests": requests,
            "total_tokens": tokens,
            "elapsed_time": 5.0,
            "avg_throughput_tokens_per_sec": tokens / 5.0,
            "end_to_end_latency_ms": {"mean": 1.0, "p50": 1.0, "p95": 2.0, "p99": 3.0},
            "cache_stats": {"decode_bytes_read_gb": 50.0, "cache_hit_rate": 0.9},
        },
    }


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path
