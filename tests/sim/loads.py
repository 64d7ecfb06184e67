"""Loads of virtual time for claims of statistics: unsaturated and saturated, open and closed."""

import random
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.result.schema import Result
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials

Load = dict[str, Any]

LOADS: dict[str, Load] = {
    "closed-saturated": {"num_users": 20, "arrival": "closed", "cpu_mem_gb": 0, "generation_mode": "none"},
    "closed-70b-dram": {
        **{"num_users": 8, "arrival": "closed", "cpu_mem_gb": 8, "generation_mode": "none"},
        "model": "llama3.1-70b-instruct",
    },
    "closed-generation": {
        **{"num_users": 20, "arrival": "closed", "cpu_mem_gb": 16, "generation_mode": "realistic"}
    },
    "open-poisson": {
        **{"num_users": 20, "request_rate": 2.0, "rate_process": "poisson"},
        **{"cpu_mem_gb": 8, "generation_mode": "fast"},
    },
}
"""Four stationary loads: intervals, false alarms and power are claimed on them."""

LITTLE: dict[str, Load] = {
    **LOADS,
    "open-overload": {"num_users": 20, "cpu_mem_gb": 8, "generation_mode": "fast"},
    "overload-no-dram": {"num_users": 50, "cpu_mem_gb": 0},
    "overload-sata": {
        **{"num_users": 30, "cpu_mem_gb": 4, "generation_mode": "fast", "device_profile": "sata-ssd"}
    },
    "prefix-open": {"num_users": 10, "io_model": "prefix", "cpu_mem_gb": 2, "generation_mode": "fast"},
    "few-allocations": {
        **{"num_users": 20, "request_rate": 4.0, "cpu_mem_gb": 2, "generation_mode": "fast"},
        "max_concurrent_allocs": 4,
    },
    "three-tiers": {
        **{"num_users": 20, "arrival": "closed", "gpu_mem_gb": 4, "cpu_mem_gb": 8, "generation_mode": "fast"}
    },
}
"""Ten loads, four of them saturated, on which Little's law must hold."""


def simulate(load: Load, seed: int = 1, **settings: Any) -> Result:
    config = Config(seed=seed, quiet=True, **{**load, **settings})
    return run_trials(make_plan(config, True), Progress(quiet=True))


SET_UPS: dict[str, Load] = {
    f"{model}, {dram} GiB DRAM, {kind}": {
        **{"model": model, "num_users": users, "cpu_mem_gb": dram, "arrival": "closed"},
        "generation_mode": "none",
        **({"duration": 60.0} if kind == "timed" else {"max_requests": 300}),
    }
    for model, users in (("llama3.1-8b", 20), ("llama3.1-70b-instruct", 10), ("mistral-7b", 20))
    for dram in (0, 4)
    for kind in ("timed", "fixed")
}
"""With and without DRAM, timed and fixed, three models: a drive of 2 GiB/s binds in all of them."""


def drive(folder: Path, name: str, seed: int, side: str, loss: float) -> str:
    """A profile of that drive, slower by `loss`, as one run meets it: runs differ by half a percent."""
    factor = (1 - loss) * (1 + 0.005 * random.Random(f"{name}/{seed}/{side}").gauss(0, 1))
    path = folder / f"{seed}-{side}-{loss}.yaml"
    figures = f"read_gib_per_sec: {2.0 * factor}, write_gib_per_sec: {1.5 * factor}"
    path.write_text(f"storage: {{{figures}, read_latency_us: 100, write_latency_us: 50, concurrency: 64}}\n")
    return str(path)


def rates(load: Load, seed: int, seconds: float, warmup: float = 100.0) -> dict[str, list[float]]:
    """Tokens and bytes of every second of a long run."""
    result = simulate(load, seed, duration=seconds + warmup, warmup=warmup)
    columns = result.timeline.columns
    byte_columns = [values for name, values in columns.items() if name.endswith("_bytes")]
    return {
        "tokens": [float(value or 0) for value in columns["tokens"]],
        "bytes": [float(sum(value or 0 for value in step)) for step in zip(*byte_columns, strict=True)],
    }
