"""Storage that a run did not use, as memory in front of it held everything."""

from kvspill.report.numbers import volume
from kvspill.result.schema import Result
from kvspill.texts import listed

_IN_FRONT = {"gpu": ("GPU memory", "--gpu-mem-gb"), "cpu": ("DRAM", "--cpu-mem-gb")}


def unused_storage(result: Result) -> str:
    """That nothing here is of the storage, and what measures it; empty where something moved there."""
    tiers = {tier.tier: tier for tier in result.tiers}
    if "storage" not in tiers or not result.requests_completed:
        return ""
    if tiers["storage"].peak_bytes or _operations(result, "storage"):
        # What was stored before the window did not fit in front of it either.
        return ""
    used = [tier for tier in _IN_FRONT if tier in tiers and _operations(result, tier)]
    if not used:
        return ""
    names, flags = zip(*(_IN_FRONT[tier] for tier in used), strict=True)
    most = volume(sum(tiers[tier].peak_bytes for tier in used))
    less = listed([f"{flag} 0" for flag in flags])
    return (
        f"Everything fitted in {listed(names)} ({most} at most): the storage was not used, and no figure "
        f"here describes it. Give {less}, or less than that, to measure it."
    )


def without_storage_io(result: Result) -> bool:
    """Whether a storage tier was there and nothing moved on it: its figures would be those of memory.

    Where operations were under way and none ended, the storage stood still: that is a figure of it.
    """
    if result.tier("storage") is None or not result.requests_completed or _operations(result, "storage"):
        return False
    return not any(result.timeline.columns.get("storage_in_flight") or ())


def _operations(result: Result, tier: str) -> float:
    return sum(result.number(f"{tier}_{verb}_ops") or 0 for verb in ("read", "write"))
