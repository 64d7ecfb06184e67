"""How much memory a run may still take: the machine's and that of the control groups around the process."""

from dataclasses import dataclass
from pathlib import Path

from kvspill.machine.cgroups import cgroup_root, control_groups, upward
from kvspill.machine.kernel import Kernel, field_of, kib_bytes, read_text, read_word


@dataclass(frozen=True, slots=True)
class Available:
    """Memory that can be taken without swapping, and what sets that limit."""

    nbytes: int
    limited_by: str


def available_memory(kernel: Kernel | None = None) -> Available | None:
    """The tightest of all limits, or None where the machine does not tell."""
    kernel = kernel or Kernel()
    limits = [limit for limit in (_machine(kernel), *_groups(kernel)) if limit is not None]
    return min(limits, key=lambda limit: limit.nbytes, default=None)


def total_memory(kernel: Kernel) -> int | None:
    """Bytes of memory in this machine."""
    return kib_bytes(field_of(kernel.proc / "meminfo", "MemTotal"))


@dataclass(frozen=True, slots=True)
class Swap:
    """Room for memory that is moved out to a disk."""

    total_bytes: int
    used_bytes: int


def swap(kernel: Kernel) -> Swap | None:
    """All swap areas together; None where there is none."""
    rows = [line.split() for line in (read_text(kernel.proc / "swaps") or "").splitlines()[1:]]
    sizes = [
        (int(row[2]), int(row[3])) for row in rows if len(row) > 3 and row[2].isdigit() and row[3].isdigit()
    ]
    if not rows:
        return None
    return Swap(sum(total for total, _ in sizes) * 1024, sum(used for _, used in sizes) * 1024)


def _machine(kernel: Kernel) -> Available | None:
    nbytes = kib_bytes(field_of(kernel.proc / "meminfo", "MemAvailable"))
    return None if nbytes is None else Available(nbytes, "this machine")


def _groups(kernel: Kernel) -> list[Available | None]:
    cgroup = cgroup_root(kernel)
    found: list[Available | None] = []
    for group in control_groups(kernel):
        if group.unified:
            for root in (cgroup, cgroup / "unified"):
                names = ("memory.max", "memory.current", "inactive_file")
                found += [_group(directory, *names) for directory in upward(root, group.path)]
        elif "memory" in group.controllers:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += [_group(directory, *names) for directory in upward(cgroup / "memory", group.path)]
    return found


def _group(directory: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> Available | None:
    limit, usage = _number(directory / limit_name), _number(directory / usage_name)
    if limit is None or usage is None:
        return None
    reclaimable = 0
    for line in (read_text(directory / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == reclaimable_name and value.strip().isdigit():
            reclaimable = int(value)
    # Cold page cache counts as usage but makes way for a run.
    return Available(max(0, limit - max(0, usage - reclaimable)), f"the control group {directory}")


def _number(path: Path) -> int | None:
    text = read_word(path)
    return int(text) if text.isdigit() else None
