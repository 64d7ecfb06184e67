"""Where the kernel's files are, and how one of them is read."""

import fcntl
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_CLOCK_MONOTONIC_COARSE = 6


@dataclass(frozen=True, slots=True)
class Kernel:
    """The roots of the kernel's files; tests point them at trees of their own."""

    proc: Path = field(default_factory=lambda: Path("/proc"))
    sys: Path = field(default_factory=lambda: Path("/sys"))


def read_text(path: Path) -> str | None:
    """A kernel file's text, or None where it is absent or closed to us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def names_in(folder: Path) -> list[str] | None:
    """The names in a folder of the kernel; None where it is absent or cannot be opened."""
    try:
        return os.listdir(folder)
    except OSError:
        return None


def read_word(path: Path) -> str:
    """The text of a kernel file that holds one value; empty where it cannot be read."""
    return (read_text(path) or "").strip()


def field_of(path: Path, name: str) -> str | None:
    """The value of the first `name : value` line of a kernel file."""
    for line in (read_text(path) or "").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip() or None
    return None


def kib_bytes(text: str | None) -> int | None:
    """The bytes of a value such as `2048 kB`, None where there is none."""
    return int(text.split()[0]) * 1024 if text else None


def tick_seconds() -> float:
    """The tick of the kernel's clock, with which its timers ring: 1 to 10 ms."""
    return time.clock_getres(_CLOCK_MONOTONIC_COARSE)


def boot_id(kernel: Kernel | None = None) -> str:
    """Names this start of this machine, also inside containers; empty where the kernel does not tell."""
    return read_word((kernel or Kernel()).proc / "sys" / "kernel" / "random" / "boot_id")


def process_exists(pid: int, kernel: Kernel | None = None) -> bool:
    """Whether a process of that number is there, ours or not.

    One that has ended and that its parent has not asked for yet (a zombie) is gone. While another of its
    threads goes on, as in a system call of a hung device, it has not ended, though it looks the same.
    """
    folder = (kernel or Kernel()).proc / str(pid)
    if not folder.exists():
        return False
    state = field_of(folder / "status", "State") or ""
    return not state.startswith(("Z", "X")) or len(names_in(folder / "task") or ()) > 1


def opened_again(fd: int, kernel: Kernel | None = None) -> int:
    """Another descriptor of an open file, without the flags that it was found by, such as O_NOFOLLOW."""
    kept = fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_DIRECT)
    return os.open((kernel or Kernel()).proc / "self" / "fd" / str(fd), kept | os.O_CLOEXEC)


def path_of(fd: int, kernel: Kernel | None = None) -> str | None:
    """Where an open file is now; None where the kernel does not tell, or it was removed."""
    try:
        path = os.readlink((kernel or Kernel()).proc / "self" / "fd" / str(fd))
    except OSError:
        return None
    return None if path.endswith(" (deleted)") else path


def mount_id(fd: int, kernel: Kernel | None = None) -> str | None:
    """Names the mount that an open file was reached by; None where the kernel does not tell.

    Two mounts of one file system have the same device number, and different names here.
    """
    return field_of((kernel or Kernel()).proc / "self" / "fdinfo" / str(fd), "mnt_id")
