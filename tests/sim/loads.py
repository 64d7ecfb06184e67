"""Loads of virtual time for claims of statistics: unsaturated and saturated, open and closed."""

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
