"""The control groups around this process, and what they limit beside memory: processors and I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.machine.kernel import Kernel, read_text, read_word
from kvspill.texts import size_text


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


def upward(root: Path, path: str) -> list[Path]:
    """The group's directory and all above it; inside a container only the root may be visible."""
    inner = root / path.lstrip("/")
    return [inner, *(parent for parent in inner.parents if parent == root or root in parent.parents)]


def cpu_limit(kernel: Kernel) -> float | None:
    """Processors that control groups allow this process, or None without such a limit."""
    root, found = cgroup_root(kernel), []
    for group in control_groups(kernel):
        if "cpu" in group.controllers:
            quotas = [
                (read_word(folder / "cpu.cfs_quota_us"), read_word(folder / "cpu.cfs_period_us"))
                for folder in upward(root / "cpu", group.path)
            ]
        elif group.unified:
            texts = [(read_text(folder / "cpu.max") or "").split() for folder in upward(root, group.path)]
            quotas = [(text[0], text[1]) for text in texts if len(text) == 2]
        else:
            continue
        found += [
            int(quota) / int(period)
            for quota, period in quotas
            if quota.isdigit() and period.isdigit() and int(period)
        ]
    return min(found, default=None)


@dataclass(frozen=True, slots=True)
class IoLimit:
    """What control groups allow this process on one device, in one direction."""

    device: str
    verb: str
    """read or write."""
    unit: str
    """bytes or operations."""
    per_sec: int

    def describe(self) -> str:
        """In words: "200 MiB/s of reads on vda"."""
        amount = f"{size_text(self.per_sec)}/s of {self.verb}s"
        return f"{amount if self.unit == 'bytes' else f'{self.per_sec:,} {self.verb}s/s'} on {self.device}"


_VERBS = {"r": "read", "w": "write"}
_UNITS = {"bps": "bytes", "iops": "operations"}


def io_limits(devices: Sequence[str], kernel: Kernel) -> list[IoLimit]:
    """What control groups limit of this process's I/O on these devices: the lowest limit of each kind."""
    numbers = {read_word(kernel.sys / "block" / device / "dev"): device for device in devices}
    least: dict[tuple[str, str, str], int] = {}
    for number, name, value in _limits(kernel):
        device, verb, unit = numbers.get(number), _VERBS.get(name[:1]), _UNITS.get(name[1:])
        if device is not None and verb is not None and unit is not None and value.isdigit():
            key = (device, verb, unit)
            least[key] = min(int(value), least.get(key, int(value)))
    return [IoLimit(*key, per_sec) for key, per_sec in least.items()]


def _limits(kernel: Kernel) -> Iterator[tuple[str, str, str]]:
    """Every limit as the second version writes it: device number, "rbps" and the like, value or "max"."""
    root = cgroup_root(kernel)
    for group in control_groups(kernel):
        if "blkio" in group.controllers:
            # In the first version the limits of the groups above do not add up to one of this group.
            folder = group.folder(root / "blkio")
            for letter, verb in _VERBS.items():
                for unit in _UNITS:
                    text = read_text(folder / f"blkio.throttle.{verb}_{unit}_device") or ""
                    rows = (line.split() for line in text.splitlines())
                    yield from ((row[0], letter + unit, row[1]) for row in rows if len(row) == 2)
        elif group.unified:
            for folder in upward(root, group.path):
                for line in (read_text(folder / "io.max") or "").splitlines():
                    number, *limits = line.split() or [""]
                    for limit in limits:
                        name, _, value = limit.partition("=")
                        yield number, name, value
