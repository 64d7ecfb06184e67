"""`kvspill quick`: 30 seconds on the current disk that can neither fill it nor take much memory."""

import math
from collections.abc import Sequence
from pathlib import Path

from kvspill.cli.run import measured
from kvspill.config import Config
from kvspill.config.origins import was_given
from kvspill.errors import UsageError
from kvspill.records import GIB

CAPACITY_GB_MAX = 4.0
FREE_SHARE_MAX = 0.1
DEFAULTS = {
    "num_users": 4,
    "duration": 30.0,
    "arrival": "closed",
    "cpu_mem_gb": 0.5,
    "generation_mode": "fast",
}
HELPS = {
    "storage_capacity_gb": f"storage tier in GiB (default: {CAPACITY_GB_MAX:g}, or a tenth of what is free)"
}
OWN_NOTES = {
    "capacity_bound": "storage_capacity_gb",
    "few_trials": "trials",
    "half_done": "duration",
    "not_steady": "duration",
    "too_short": "duration",
}
"""Notes that follow from what quick chooses, with the setting that takes the choice from it."""
SMALL_MODEL = "tiny-1b"

SUMMARY = (
    "Measures the current disk for 30 seconds with users who wait for their answers,\n"
    "holding at most 4 GiB and a tenth of the free space."
)
EXAMPLES = """\
examples:
  kvspill quick
  kvspill quick --cache-dir /mnt/nvme --num-users 6
"""


def main(argv: Sequence[str], prog: str = "kvspill quick") -> int:
    """Cap and run; returns the exit code."""
    return measured(
        argv, prog, SUMMARY, EXAMPLES, defaults=DEFAULTS, helps=HELPS, settled=capped, own_notes=OWN_NOTES
    )


def capped(config: Config, here: Path | None = None) -> Config:
    """The configuration with a safe storage capacity, and a small model where the space is small."""
    from kvspill.run.preflight import cache_dirs, free_bytes, needs_directories
    from kvspill.run.stores import FREE_SPACE_SHARE, addresses, room_at_addresses

    if config.storage_capacity_gb is not None or config.storage_tier == "off":
        return config
    places: Sequence[Path | str]
    if needs_directories(config):
        places = dirs = cache_dirs(config, here or Path.cwd())
        free = free_bytes(dirs)
    elif places := addresses(config):
        free = int(room_at_addresses(config, 1) / FREE_SPACE_SHARE)
    else:
        return config
    capacity_gb = safe_capacity_gb(free)
    capacity_bytes = capacity_gb * GIB
    changes: dict[str, object] = {"storage_capacity_gb": capacity_gb}
    # Two of the largest entries are the least that lets anything be evicted.
    if not was_given(config, "model") and capacity_bytes < 2 * config.largest_entry_bytes:
        changes["model"] = SMALL_MODEL
        config = config.changed(model=SMALL_MODEL)
    if capacity_bytes < config.largest_entry_bytes:
        raise UsageError(
            f"{', '.join(map(str, places))}: a tenth of the free space is {capacity_gb:g} GiB, too little "
            f"for one entry of {config.model}; name a larger disk with --cache-dir"
        )
    return config.changed(**changes)


def safe_capacity_gb(free: int) -> float:
    """A storage capacity that leaves nine tenths of the free space alone."""
    return min(CAPACITY_GB_MAX, math.floor(free * FREE_SHARE_MAX / GIB * 100) / 100)
