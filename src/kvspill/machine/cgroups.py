"""The control groups around this process, and what they limit beside memory: processors and I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.machine.kernel import Kernel, read_text, read_word


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One group of this process: the controllers of a first-version hierarchy, or none in the second."""

    controllers: frozenset[str]
    path: str

    @property
    def unified(self) -> bool:
        return not self.controllers

    def folder(self, root: Path) -> Path:
        """Its directory below the root of a hierarchy."""
        return root / self.path.lstrip("/")


def control_groups(kernel: Kernel) -> Iterator[ControlGroup]:
    """The groups that this process is in."""
    for line in (read_text(kernel.proc / "self" / "cgroup") or "").splitlines():
        words = line.split(":", 2)
        if len(words) == 3:
            yield ControlGroup(frozenset(filter(None, words[1].split(","))), words[2])


def cgroup_root(kernel: Kernel) -> Path:
    return kernel.sys / "fs" / "cgroup"


def cpu_limit(kernel: Kernel) -> float | None:
    """Processors that a control group allows this process, or None without such a limit."""
    root = cgroup_root(kernel)
    for group in control_groups(kernel):
        if "cpu" in group.controllers:
            folder = group.folder(root / "cpu")
            quota, period = read_word(folder / "cpu.cfs_quota_us"), read_word(folder / "cpu.cfs_period_us")
        elif group.unified:
            quota, _, period = read_word(group.folder(root) / "cpu.max").partition(" ")
        else:
            continue
        if quota.isdigit() and period.isdigit() and int(period):
            return int(quota) / int(period)
    return None


def io_limits(disks: Sequence[str], kernel: Kernel) -> list[str]:
    """What control groups limit of this process's I/O on these disks, in the kernel's words."""
    numbers = {read_word(kernel.sys / "block" / disk / "dev"): disk for disk in disks}
    root, found = cgroup_root(kernel), []
    for group in control_groups(kernel):
        paths: list[Path] = []
        if "blkio" in group.controllers:
            folder = group.folder(root / "blkio")
            paths = [folder / f"blkio.throttle.{verb}_bps_device" for verb in ("read", "write")]
        elif group.unified:
            paths = [group.folder(root) / "io.max"]
        for path in paths:
            rows = [line.split(maxsplit=1) for line in (read_text(path) or "").splitlines()]
            found += [
                f"{numbers[row[0]]} {path.name} {row[1]}"
                for row in rows
                if len(row) == 2 and row[0] in numbers
            ]
    return found
