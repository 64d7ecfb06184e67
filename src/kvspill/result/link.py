"""How long a real GPU's memory and its link were at work, and what copies the link carried."""

from kvspill.result.schema import Result

_WAYS = {
    "hbm_read": "hits inside its memory",
    "pcie_in": "puts",
    "pcie_load": "loads from storage",
    "pcie_out": "demotions",
}


def _seconds(result: Result) -> dict[str, float]:
    """How long a real GPU's memory and its link were at work, by the way that bytes went; none else."""
    gpu = result.tier("gpu")
    counters = {} if gpu is None else gpu.counters
    found = {way: counters.get(f"{way}_device_seconds") for way in _WAYS}
    return {way: float(seconds) for way, seconds in found.items() if isinstance(seconds, int | float)}


def link_share(result: Result) -> float | None:
    """The share of a real GPU's own time that went into copies over PCIe."""
    seconds = _seconds(result)
    whole = sum(seconds.values())
    return 1 - seconds.get("hbm_read", 0.0) / whole if whole else None


def link_sentence(result: Result) -> str | None:
    """How much of a real GPU's own time went over PCIe, and into which copies; None without one."""
    link, seconds = link_share(result), _seconds(result)
    if link is None:
        return None
    ways = ", ".join(f"{label} {seconds[way]:.2f} s" for way, label in _WAYS.items() if way in seconds)
    return f"PCIe takes {link:.0%} of the GPU's own time ({ways})."
