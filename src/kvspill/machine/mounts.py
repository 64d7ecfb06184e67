"""Which file system and which block devices lie behind a directory, as the kernel's /proc and /sys tell."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvspill.machine.kernel import Kernel, read_text, read_word

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_DELETED = b"//deleted"
"""What the kernel appends to a mount point whose directory was removed: no path leads there."""
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount that holds a directory."""

    device: str
    """major:minor of the file system, which is not always a block device."""
    point: str
    kind: str
    source: str
    options: str = ""
    """Of the file system and of this mount of it, separated by commas."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop device: a file that stands for a disk."""

    name: str
    file: str
    filesystem: str | None
    """What the file lies on, where that can be seen."""
    direct_io: bool | None
    """Whether it goes past the page cache of that file system."""


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """The device that a file system sits on, and the disks below it (partitions, dm, md, loop resolved)."""

    name: str
    disks: tuple[str, ...]
    model: str | None
    rotational: bool | None
    scheduler: str | None
    loops: tuple[Loop, ...] = ()
    """The loop devices between the file system and those disks."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them that the kernel knows by a name."""
        return tuple(dict.fromkeys([*self.disks, *(loop.name for loop in self.loops), self.name]))


def find_mount(directory: Path, kernel: Kernel) -> Mount | None:
    """The mount of a directory: by its device number, the longest mount point above it if several match."""
    try:
        device_number = os.stat(directory).st_dev
        resolved = os.path.realpath(directory)
    except OSError:
        return None
    device = f"{os.major(device_number)}:{os.minor(device_number)}"
    above = [mount for mount in read_mounts(kernel) if _is_above(mount.point, resolved)]
    # Some file systems (btrfs) give files another number than their mount has.
    matching = [mount for mount in above if mount.device == device] or above
    # The last of equal mount points covers the ones before it.
    return max(reversed(matching), key=lambda mount: len(mount.point), default=None)


def file_system(directory: Path, kernel: Kernel | None = None) -> str:
    """The type of the file system that a directory lies on, or "" where it cannot be told."""
    mount = find_mount(directory, kernel or Kernel())
    return "" if mount is None else mount.kind


def is_system(path: Path) -> bool:
    """Whether a directory belongs to the system, so that no run may keep its files there."""
    if path == Path("/"):
        return True
    if path == _SHARED_MEMORY or _SHARED_MEMORY in path.parents:
        return False
    roots = [Path(name) for name in _SYSTEM]
    return any(path == root or root in path.parents for root in roots)


def read_mounts(kernel: Kernel) -> list[Mount]:
    """The mounts that this process sees, in the kernel's order; lines that are cut short are left out.

    Names are bytes to the kernel: those that are not UTF-8 come as Python's paths do, with surrogates.
    """
    try:
        text = (kernel.proc / "self" / "mountinfo").read_bytes()
    except OSError:
        return []
    found = []
    for line in text.split(b"\n"):
        left, _, right = line.partition(b" - ")
        fields, tail = left.split(b" "), right.split(b" ")
        if len(fields) >= 5 and len(tail) >= 2 and not fields[4].endswith(_DELETED):
            options = b",".join([*fields[5:6], *tail[2:3]])
            words = (fields[2], fields[4], tail[0], tail[1], options)
            found.append(Mount(*(os.fsdecode(unescaped(word)) for word in words)))
    return found


def unescaped(name: bytes) -> bytes:
    """A name without the kernel's octal escapes, which stand for blanks, tabs, line feeds, # and \\."""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), name)


def _is_above(point: str, directory: str) -> bool:
    return point == "/" or directory == point or directory.startswith(point + "/")


def find_block_device(mount: Mount, kernel: Kernel) -> BlockDevice | None:
    """The block device of a mount, or None where it has none (tmpfs, NFS, overlay)."""
    folder = _device_folder(mount.device, kernel) or _source_folder(mount.source, kernel)
    if folder is None:
        return None
    loops: list[Loop] = []
    disks = tuple(sorted(disk.name for disk in _disks(folder, kernel, loops)))
    first = kernel.sys / "block" / disks[0]
    rotational = read_word(first / "queue" / "rotational")
    return BlockDevice(
        name=folder.name,
        disks=disks,
        model=read_word(first / "device" / "model") or None,
        rotational={"0": False, "1": True}.get(rotational),
        scheduler=_active(read_text(first / "queue" / "scheduler")),
        loops=tuple(loops),
    )


def _device_folder(device: str, kernel: Kernel) -> Path | None:
    link = kernel.sys / "dev" / "block" / device
    return Path(os.path.realpath(link)) if link.exists() else None


def _source_folder(source: str, kernel: Kernel) -> Path | None:
    """For file systems with numbers of their own (btrfs): the device they were mounted from."""
    if not source.startswith("/dev/"):
        return None
    try:
        number = os.stat(source).st_rdev
    except OSError:
        return None
    return _device_folder(f"{os.major(number)}:{os.minor(number)}", kernel)


def _disks(folder: Path, kernel: Kernel, loops: list[Loop]) -> Iterator[Path]:
    """The whole disks below a device: under partitions, dm, md, and under the file of a loop device.

    Loop devices on the way are added to `loops`.
    """
    if (folder / "partition").exists():
        folder = folder.parent
    below = sorted((folder / "slaves").glob("*")) if (folder / "slaves").is_dir() else []
    if below:
        for slave in below:
            yield from _disks(Path(os.path.realpath(slave)), kernel, loops)
        return
    backing = read_word(folder / "loop" / "backing_file")
    mount = find_mount(Path(backing), kernel) if backing else None
    if backing:
        direct = read_word(folder / "loop" / "dio")
        kind = mount.kind if mount else None
        loops.append(Loop(folder.name, backing, kind, {"0": False, "1": True}.get(direct)))
    beneath = _device_folder(mount.device, kernel) or _source_folder(mount.source, kernel) if mount else None
    if beneath is not None and beneath != folder:
        yield from _disks(beneath, kernel, loops)
    else:
        yield folder


def _active(scheduler: str | None) -> str | None:
    """The chosen one of "none [mq-deadline] kyber"."""
    if scheduler is None:
        return None
    chosen = [word.strip("[]") for word in scheduler.split() if word.startswith("[")]
    return chosen[0] if chosen else scheduler.strip() or None
