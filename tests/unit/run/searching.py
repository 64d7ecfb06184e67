"""What several tests search the limit of."""

from typing import Any

from kvspill.config import Config


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
