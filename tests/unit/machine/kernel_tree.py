"""A made-up /proc and /sys for tests: the machine that a check shall see."""

import os
from pathlib import Path

from kvspill.machine.kernel import Kernel

GIB = 1 << 30


class Tree:
    """Writes kernel files under a temporary directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kernel = Kernel(root / "proc", root / "sys")
        self.proc("meminfo", "MemTotal: 67108864 kB\nMemAvailable: 50331648 kB\n")
        self.proc("cpuinfo", "model name : Test CPU\nflags : fpu sse\n")
        self.proc("loadavg", "0.10 0.10 0.10 1/100 1000\n")
        self.proc("swaps", "Filename Type Size Used Priority\n")
        self.proc("self/cgroup", "0::/\n")

    def proc(self, name: str, text: str) -> None:
        self._write(self.kernel.proc / name, text)

    def sys(self, name: str, text: str) -> None:
        self._write(self.kernel.sys / name, text)

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def mount(
        self, directory: Path, kind: str = "ext4", disk: str | None = "nvme0n1", scheduler: str = "[none]"
    ) -> None:
        """Let the directory lie on a file system of this kind, on this disk."""
        number = os.stat(directory).st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        source = f"/dev/{disk}" if disk else "server:/export"
        self.proc("self/mountinfo", f"27 1 {device} / {directory} rw - {kind} {source} rw\n")
        if disk is None:
            return
        folder = self.kernel.sys / "block" / disk
        self.sys(f"block/{disk}/dev", device + "\n")
        self.sys(f"block/{disk}/queue/rotational", "0\n")
        self.sys(f"block/{disk}/queue/scheduler", scheduler + " mq-deadline\n")
        self.sys(f"block/{disk}/queue/read_ahead_kb", "4096\n")
        self.sys(f"block/{disk}/device/model", "Fast Drive 1\n")
        link = self.kernel.sys / "dev" / "block" / device
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
