"""A block device of a known speed: a loop device that the blkio controller slows down."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib.shape import MIB

_BLKIO = Path("/sys/fs/cgroup/blkio")
_UNMOUNT_SECONDS = 10
_LIMITS = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")


@dataclass(frozen=True, slots=True)
class Throttled:
    """A mounted loop device and the control group whose members it is slow for."""

    mount: Path
    device: str
    """Name such as /dev/loop0."""
    group: Path

    def set_speed(self, mib_per_sec: float, write_mib_per_sec: float | None = None) -> None:
        """Limit reads and writes, each, of all who joined; writes apart where given."""
        number = os.stat(self.device).st_rdev
        for name, speed in zip(_LIMITS, (mib_per_sec, write_mib_per_sec or mib_per_sec), strict=True):
            rate = round(speed * MIB)
            (self.group / name).write_text(f"{os.major(number)}:{os.minor(number)} {rate}\n")

    def join(self) -> None:
        """Put this process under the limit; meant for a child before it starts its program."""
        (self.group / "cgroup.procs").write_text("0\n")

    def add(self, pid: int) -> None:
        (self.group / "cgroup.procs").write_text(f"{pid}\n")

    def release(self, pid: int) -> None:
        (self.group.parent / "cgroup.procs").write_text(f"{pid}\n")


def missing() -> str | None:
    """Why no throttled device can be made here, or None."""
    if os.geteuid() != 0:
        return "a throttled loop device needs root"
    if not all((_BLKIO / name).exists() for name in _LIMITS):
        return f"a throttled loop device needs the blkio controller of cgroup v1 at {_BLKIO}"
    for tool in ("losetup", "mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"a throttled loop device needs {tool}"
    if not Path("/dev/loop-control").exists():
        return "a throttled loop device needs /dev/loop-control"
    return None


@contextmanager
def throttled_device(directory: Path, nbytes: int, *, journal: bool = True) -> Iterator[Throttled]:
    """Make the device in a sparse file under directory; whatever happens, it is taken down again."""
    work = Path(tempfile.mkdtemp(prefix="kvspill-loop-", dir=directory))
    image, mount = work / "image", work / "mnt"
    group = _BLKIO / work.name
    device = ""
    mounted = False
    try:
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(nbytes)
        device = _command("losetup", "--find", "--show", "--direct-io=on", str(image))
        features = [] if journal else ["-O", "^has_journal"]
        _command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", *features, device)
        _command("mount", "-o", "nodiscard", device, str(mount))
        mounted = True
        group.mkdir()
        yield Throttled(mount, device, group)
    finally:
        if mounted:
            _unmount(mount)
        if device:
            _command("losetup", "--detach", device)
        if group.exists():
            _release(group)
        shutil.rmtree(work)


def _unmount(mount: Path) -> None:
    """A process that ended just now may hold it for a moment."""
    until = time.monotonic() + _UNMOUNT_SECONDS
    while subprocess.run(["umount", str(mount)], capture_output=True).returncode != 0:
        if time.monotonic() > until:
            _command("umount", str(mount))
            return
        time.sleep(0.2)


def _release(group: Path) -> None:
    """Give members back to the parent group; only then may the group go."""
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def _command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
