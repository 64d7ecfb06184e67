"""How much memory a run may still take: the machine's and that of the control groups around the process."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Available:
    """Memory that can be taken without swapping, and what sets that limit."""

    nbytes: int
    limited_by: str


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Available | None:
    """The tightest of all limits, or None where the machine does not tell."""
    limits = [limit for limit in (_machine(proc), *_groups(proc, cgroup)) if limit is not None]
    return min(limits, key=lambda limit: limit.nbytes, default=None)


def _machine(proc: Path) -> Available | None:
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            return Available(int(line.split()[1]) * 1024, "this machine")
    return None


def _groups(proc: Path, cgroup: Path) -> list[Available | None]:
    found: list[Available | None] = []
    for line in _lines(proc / "self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            for root in (cgroup, cgroup / "unified"):
                names = ("memory.max", "memory.current", "inactive_file")
                found += [_group(directory, *names) for directory in _upward(root, path)]
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += [_group(directory, *names) for directory in _upward(cgroup / "memory", path)]
    return found


def _upward(root: Path, path: str) -> list[Path]:
    """The group's directory and all above it; inside a container only the root may be visible."""
    inner = root / path.lstrip("/")
    return [inner, *(parent for parent in inner.parents if parent == root or root in parent.parents)]


def _group(directory: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> Available | None:
    limit, usage = _number(directory / limit_name), _number(directory / usage_name)
    if limit is None or usage is None:
        return None
    reclaimable = 0
    for line in _lines(directory / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == reclaimable_name and value.strip().isdigit():
            reclaimable = int(value)
    # Cold page cache counts as usage but makes way for a run.
    return Available(max(0, limit - max(0, usage - reclaimable)), f"the control group {directory}")


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        # A file that this kernel does not have sets no limit.
        return []
