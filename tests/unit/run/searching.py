"""What several tests search the limit of."""

from pathlib import Path
from typing import Any

from kvspill.config import Config
from sim.limit_sweep import search, search_config


def trace_search(**changes: Any) -> Config:
    """A search for the speed at which a slow disk can just serve a recording."""
    return Config(
        model="tiny-1b",
        trace="azure:sample",
        replay_cycles=0,
        duration=600.0,
        cpu_mem_gb=0,
        generation_mode="none",
        quiet=True,
        device_profile="sata-ssd",
        enable_autoscaling=True,
        autoscaler_mode="slo",
        slo_target_ms=30_000,
        **changes,
    )


def quick(tmp_path: Path, mode: str, **changes: Any) -> dict[str, Any]:
    """A search with short stages: these tests are about what is said, not about how exact it is."""
    config = search_config(tmp_path, "llama3.1-8b", 2.0, mode, **changes)
    assert config.autoscaler_interval is not None
    return search(config.changed(autoscaler_interval=config.autoscaler_interval / 2))
