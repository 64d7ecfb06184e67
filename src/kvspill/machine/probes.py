"""Probes of the machine around the window: device, process, NFS and CPU counters before and after."""

import os
import resource
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvspill.machine.kernel import Kernel, kib_bytes, names_in, read_text
from kvspill.machine.mounts import MEMORY_FILE_SYSTEMS, find_block_device, find_mount
from kvspill.machine.nfs import read_nfs_mount
from kvspill.machine.processes import Counters, process_io
from kvspill.machine.processors import processor_ticks
from kvspill.records import NS_PER_SEC

SECTOR_BYTES = 512

_DISK_FIELDS = {
    **{"reads": 3, "read_bytes": 5, "read_ms": 6, "writes": 7, "written_bytes": 9, "write_ms": 10},
    **{"reads_merged": 4, "writes_merged": 8},
    # How long the device had work, and the time of all its requests added up: their ratio is its queue.
    **{"busy_ms": 12, "queue_ms": 13},
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment; None where this machine doesn't tell."""

    block_device: Counters | None
    process_io: Counters | None
    nfs: Counters | None
    each: Mapping[str, Counters]
    """The same of each block device by its name, or of each NFS file system by its number."""
    cpu_seconds: float
    cpu_wait_seconds: float | None
    """How long this process's threads, but the main one, were ready to run and had no processor."""
    processors: Counters | None
    """Ticks of the usable processors: those `busy` with any program, of `all`."""
    resident_bytes: int | None
    peak_resident_bytes: int | None


class Probe:
    """Looks at the devices behind some directories and at this process."""

    def __init__(self, directories: Iterable[Path | str] = (), kernel: Kernel | None = None):
        self._kernel = kernel or Kernel()
        self.directories = tuple(map(Path, directories))
        found = [find_mount(directory, self._kernel) for directory in self.directories]
        mounts = [mount for mount in found if mount is not None]
        devices = [find_block_device(mount, self._kernel) for mount in mounts]
        # A directory in memory has no device and moves no byte of one; of other kinds nobody can tell.
        uncounted = [
            mount
            for mount, device in zip(mounts, devices, strict=True)
            if device is None and mount.kind not in MEMORY_FILE_SYSTEMS
        ]
        self._complete = any(devices) and len(mounts) == len(found) and not uncounted
        self.devices = sorted({device.name for device in devices if device is not None})
        self.disks = sorted({disk for device in devices if device is not None for disk in device.disks})
        self._nfs = [mount for mount in mounts if mount.kind.startswith("nfs")]
        self._all_nfs = bool(self._nfs) and len(self._nfs) == len(found)

    @property
    def watched(self) -> tuple[str, ...]:
        """The block devices and the NFS mounts, of which two with one number share their counters."""
        return (*self.devices, *sorted({mount.device for mount in self._nfs}))

    def snapshot(self) -> Snapshot:
        """Read all counters now."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        status = _fields(read_text(self._kernel.proc / "self" / "status"))
        disks, mounts = self._by_device(), self._by_mount() if self._all_nfs else None
        return Snapshot(
            block_device=_added(disks),
            process_io=process_io("self", self._kernel),
            nfs=_added(mounts),
            each=disks or mounts or {},
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            cpu_wait_seconds=self._cpu_wait_seconds(),
            processors=processor_ticks(self._kernel),
            resident_bytes=kib_bytes(status.get("VmRSS")),
            peak_resident_bytes=kib_bytes(status.get("VmHWM")),
        )

    def difference(self, before: Snapshot, after: Snapshot) -> dict[str, Any]:
        """What happened between two snapshots, as plain data for the result."""
        block_device: dict[str, Any] | None = _grown(before.block_device, after.block_device)
        if block_device is not None:
            block_device = {"devices": self.devices, "disks": self.disks, **block_device}
        cpu_seconds = after.cpu_seconds - before.cpu_seconds
        return {
            "block_device": block_device,
            "process_io": _grown(before.process_io, after.process_io),
            "nfs": _grown(before.nfs, after.nfs),
            "each": {name: _grown(before.each.get(name), now) for name, now in after.each.items()},
            "cpu_seconds": cpu_seconds,
            # A thread that ends takes its count along.
            "cpu_wait_seconds": None
            if before.cpu_wait_seconds is None or after.cpu_wait_seconds is None
            else max(0.0, after.cpu_wait_seconds - before.cpu_wait_seconds),
            "cpu_others_share": _others_share(_grown(before.processors, after.processors), cpu_seconds),
            "resident_bytes": after.resident_bytes,
            "peak_resident_bytes": after.peak_resident_bytes,
        }

    def _cpu_wait_seconds(self) -> float | None:
        """By the second figure of each thread's schedstat; the main thread makes no call that is timed."""
        tasks = self._kernel.proc / "self" / "task"
        threads = [name for name in names_in(tasks) or () if name != str(os.getpid())]
        found = [(read_text(tasks / name / "schedstat") or "").split() for name in threads]
        # The sum of some threads would be less than it was of all: then it is not known.
        if not found or any(len(words) < 2 for words in found):
            return None
        return sum(int(words[1]) for words in found) / NS_PER_SEC

    def device_counters(self) -> Counters | None:
        """What the kernel counted of the devices by now; None where it does not know all of them."""
        return _added(self._by_device())

    def _by_device(self) -> dict[str, Counters] | None:
        if not self._complete:
            return None
        text = read_text(self._kernel.proc / "diskstats")
        rows = {fields[2]: fields for fields in map(str.split, (text or "").splitlines()) if len(fields) > 13}
        if any(name not in rows for name in self.devices):
            return None
        return {name: _of_disk(rows[name]) for name in self.devices}

    def _by_mount(self) -> dict[str, Counters] | None:
        """By the number of the file system, whose counters the kernel shows at each of its mounts."""
        found = {}
        for mount in {mount.device: mount for mount in self._nfs}.values():
            seen = read_nfs_mount(mount, self._kernel)
            if seen is None or not seen.counters:
                return None
            found[mount.device] = seen.counters
        return found


def _others_share(ticks: Mapping[str, int] | None, own_seconds: float) -> float | None:
    """The part of the processors' time that others had: programs, the kernel, the machine around this one."""
    if ticks is None or ticks["all"] <= 0:
        return None
    own_ticks = own_seconds * os.sysconf("SC_CLK_TCK")
    return min(1.0, max(0.0, (ticks["busy"] - own_ticks) / ticks["all"]))


def _of_disk(fields: list[str]) -> Counters:
    counters = {key: int(fields[place]) for key, place in _DISK_FIELDS.items()}
    counters["read_bytes"] *= SECTOR_BYTES
    counters["written_bytes"] *= SECTOR_BYTES
    return counters


def _added(each: Mapping[str, Counters] | None) -> Counters | None:
    if each is None:
        return None
    totals: Counter[str] = Counter()
    for counters in each.values():
        totals.update(counters)
    return dict(totals)


def _fields(text: str | None) -> dict[str, str]:
    pairs = (line.partition(":") for line in (text or "").splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _grown(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> dict[str, int] | None:
    if before is None or after is None:
        return None
    return {name: after[name] - before[name] for name in after}
