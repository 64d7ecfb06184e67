"""Facts about the machine and the software, for the result: what doesn't change while a run goes on."""

import os
import platform
import socket
import sys
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kvspill.machine.cgroups import cpu_limit, io_limits
from kvspill.machine.gpu import gpu_facts
from kvspill.machine.kernel import Kernel, field_of
from kvspill.machine.memory import total_memory
from kvspill.machine.mounts import find_block_device, find_mount
from kvspill.machine.network import look_at_network

_PACKAGES = ("hdrhistogram", "numpy", "pydantic", "PyYAML", "rich", "scipy")


def environment(directories: Iterable[Path | str] = (), kernel: Kernel | None = None) -> dict[str, Any]:
    """Plain data; None where this machine doesn't tell. Equal from run to run on an unchanged machine."""
    kernel = kernel or Kernel()
    return {
        "hostname": socket.gethostname(),
        "kernel": platform.release(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu_model": field_of(kernel.proc / "cpuinfo", "model name"),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cpu_limit": cpu_limit(kernel),
        "memory_bytes": total_memory(kernel),
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in _PACKAGES},
        **gpu_facts(kernel),
        "directories": [_directory(Path(directory), kernel) for directory in directories],
    }


def working_directory() -> str | None:
    """Where relative paths begin; None where it was removed."""
    try:
        return _printable(os.getcwd())
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _directory(directory: Path, kernel: Kernel) -> dict[str, Any]:
    mount = find_mount(directory, kernel)
    device = find_block_device(mount, kernel) if mount else None
    network = look_at_network(mount, kernel) if mount else None
    return {
        "path": _printable(str(directory)),
        "filesystem": mount.kind if mount else None,
        "mount_point": _printable(mount.point) if mount else None,
        "mount_source": _printable(mount.source) if mount else None,
        "device": device.name if device else None,
        "disks": list(device.disks) if device else None,
        "model": device.model if device else None,
        "rotational": device.rotational if device else None,
        "scheduler": device.scheduler if device else None,
        "network": None if network is None else asdict(network),
        "io_limits": [limit.describe() for limit in io_limits(device.names, kernel)] if device else [],
    }


def _printable(name: str) -> str:
    """A name of the file system as text that every reader of the result can decode."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")
