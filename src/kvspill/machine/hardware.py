"""What this machine has: GPUs, processors, memory, and the places where a storage tier could lie."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kvspill.machine.gpu import why_unusable
from kvspill.machine.kernel import Kernel, field_of, read_text, read_word
from kvspill.machine.memory import Available, available_memory, total_memory
from kvspill.machine.mounts import MEMORY_FILE_SYSTEMS, Loop, Mount, find_block_device, find_mount, is_system
from kvspill.machine.network import NetworkMount, is_network, look_at_network
from kvspill.machine.processors import usable_processors
from kvspill.records import GIB, MIB

USUAL_PLACES = (Path("/mnt/nvme"), Path("/mnt/ssd"))
"""Where the drive under test is mounted by convention; the current directory comes after them."""
VIRTUAL_FILE_SYSTEMS = (
    *("proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs", "pstore", "bpf"),
    *("configfs", "mqueue", "binfmt_misc", "efivarfs", "fusectl", "fuse.lxcfs", "nsfs", "rpc_pipefs"),
)
"""Views into the kernel, which store no files."""
KERNEL_VIEW = "kernel view"
MEMORY = "memory"
_MEMORY_DISKS = ("ram", "zram")
_LAYERED = ("overlay", "aufs", "virtiofs")
_VIRTUAL_MODELS = ("virtual", "qemu", "vmware", "msft", "persistentdisk")
_REMOTE_MODELS = ("elastic block store", "persistentdisk", "iscsi", "lio-org")
_QUERY_SECONDS = 10
_GPU_FIELDS = (
    *("name", "memory.total", "memory.free", "driver_version"),
    *("pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
    "ecc.errors.uncorrected.volatile.total",
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card as its driver reports it."""

    name: str
    memory_bytes: int
    free_bytes: int | None = None
    driver: str = ""
    link: "Link | None" = None
    uncorrected_errors: int | None = None
    """Errors of its memory since the driver was loaded."""


class Link(NamedTuple):
    """How a card is connected: PCIe generation and lanes, as they are and as they could be."""

    generation: int
    generation_max: int
    lanes: int
    lanes_max: int

    @property
    def whole(self) -> bool:
        """True where no lane is missing. An idle card lowers its generation by itself."""
        return self.lanes >= self.lanes_max


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that could hold the storage tier, and the device behind it."""

    path: Path
    filesystem: str
    disks: tuple[str, ...]
    model: str | None
    rotational: bool | None
    scheduler: str | None
    kind: str
    """nvme, ssd, hard disk, virtual disk, remote disk, network, memory, layered, kernel view or unknown."""
    free_bytes: int
    writable: bool
    loops: tuple[Loop, ...] = ()
    """Loop devices between the file system and the disks."""
    network: NetworkMount | None = None
    """Who serves it, where its files lie on other machines."""

    @property
    def usable(self) -> bool:
        """Whether a run could keep its files here at all."""
        return self.writable and self.kind != KERNEL_VIEW

    @property
    def devices(self) -> tuple[str, ...]:
        """The disks and the loop devices above them."""
        return tuple(dict.fromkeys([*self.disks, *(loop.name for loop in self.loops)]))

    def describe(self) -> str:
        """The device in words: "ext4 on vda (virtual disk)"."""
        model = f", {self.model}" if self.model else ""
        on = f" on {'+'.join(self.disks)}" if self.disks else ""
        through = "".join(f" through {loop.name}" for loop in self.loops if loop.name not in self.disks)
        if self.network is not None:
            return f"{self.network.describe()} ({self.kind})"
        return f"{self.filesystem or 'unknown file system'}{on}{through} ({self.kind}{model})"


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine as far as it can be told without measuring."""

    cpu_count: int
    memory_total_bytes: int | None
    memory_available: Available | None
    gpus: tuple[Gpu, ...]
    gpu_unusable: str | None
    """Why no card can be used as a tier, with the remedy, or None."""
    places: tuple[Place, ...]
    """The best place first; the suite uses that one."""

    @property
    def safe_memory_bytes(self) -> int:
        """Half of the memory that can be had without swapping."""
        return self.memory_available.nbytes // 2 if self.memory_available else 2 * GIB

    @property
    def gpu_bytes(self) -> int:
        """What is free on the first card, which the GPU tier uses; 0 where it cannot be used."""
        if not self.gpus or self.gpu_unusable is not None:
            return 0
        free_bytes = self.gpus[0].free_bytes
        return self.gpus[0].memory_bytes if free_bytes is None else free_bytes


def detect(cache_dirs: Sequence[str] | None = None, kernel: Kernel | None = None) -> Hardware:
    """Look at the machine. Given directories come instead of the usual places."""
    kernel = kernel or Kernel()
    wanted = [Path(name) for name in cache_dirs] if cache_dirs else [*_usable_usual(), Path.cwd()]
    return Hardware(
        cpu_count=usable_processors(),
        memory_total_bytes=total_memory(kernel),
        memory_available=available_memory(kernel),
        gpus=detect_gpus(),
        gpu_unusable=why_unusable(),
        places=tuple(look_at(path, kernel) for path in wanted),
    )


def _usable_usual() -> list[Path]:
    return [path for path in USUAL_PLACES if path.is_dir() and os.access(path, os.W_OK | os.X_OK)]


def is_virtual(kernel: Kernel) -> bool:
    """Whether a hypervisor runs this machine, as far as its processors tell."""
    return "hypervisor" in (field_of(kernel.proc / "cpuinfo", "flags") or "").split()


def governors(kernel: Kernel) -> frozenset[str]:
    """How the clocks of the processors are chosen; empty where that cannot be seen."""
    folders = (kernel.sys / "devices" / "system" / "cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return frozenset(read_word(path) for path in folders)


def load_average(kernel: Kernel) -> float | None:
    """Processes that ran or waited over the last minute."""
    words = (read_text(kernel.proc / "loadavg") or "").split()
    return float(words[0]) if words else None


def io_uring_disabled(kernel: Kernel) -> str:
    """The kernel's setting that forbids io_uring; empty where it has none."""
    return read_word(kernel.proc / "sys" / "kernel" / "io_uring_disabled")


def read_ahead_kib(disk: str, kernel: Kernel) -> int | None:
    """KiB that buffered reads of a disk fetch ahead."""
    text = read_word(kernel.sys / "block" / disk / "queue" / "read_ahead_kb")
    return int(text) if text.isdigit() else None


def detect_gpus(ask: Callable[[], str | None] | None = None) -> tuple[Gpu, ...]:
    """The NVIDIA cards that the driver's own tool lists; none where it is absent or fails."""
    found = []
    for line in ((ask or _ask_nvidia)() or "").splitlines():
        name, *values = line.rsplit(",", len(_GPU_FIELDS) - 1)
        total, free, driver, *rest = (value.strip() for value in values) if values else ("", "", "")
        if total.isdigit():
            numbers = [int(value) if value.isdigit() else None for value in rest]
            found.append(_gpu(name.strip(), int(total) * MIB, free, driver, numbers))
    return tuple(found)


def _gpu(name: str, nbytes: int, free: str, driver: str, numbers: Sequence[int | None]) -> Gpu:
    *link, errors = numbers or (None,)
    known = [number for number in link if number is not None]
    return Gpu(
        name,
        nbytes,
        int(free) * MIB if free.isdigit() else None,
        driver,
        Link(*known) if len(known) == len(Link._fields) else None,
        errors,
    )


def _ask_nvidia() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        # A driver that does not answer has no card to offer.
        return None
    return answer.stdout if answer.returncode == 0 else None


def look_at(path: Path, kernel: Kernel) -> Place:
    """What lies behind a directory."""
    mount = find_mount(path, kernel)
    device = find_block_device(mount, kernel) if mount else None
    disks = device.disks if device else ()
    model = device.model if device else None
    return Place(
        path=path,
        filesystem=mount.kind if mount else "",
        disks=disks,
        model=model,
        rotational=device.rotational if device else None,
        scheduler=device.scheduler if device else None,
        kind=kind_of(
            mount, disks, model, device.rotational if device else None, device.loops if device else ()
        ),
        free_bytes=_free(path),
        writable=os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK),
        loops=device.loops if device else (),
        network=look_at_network(mount, kernel) if mount else None,
    )


def cannot_be_made(path: Path, kernel: Kernel) -> Path | None:
    """The nearest directory that exists above a missing one, where none can be made for a run; else None."""
    path = path.absolute()
    above = next(parent for parent in path.parents if parent.exists())
    mount = find_mount(above, kernel)
    stores = mount is None or mount.kind not in VIRTUAL_FILE_SYSTEMS
    can = stores and os.access(above, os.W_OK | os.X_OK) and not is_system(path)
    return None if can else above


def kind_of(
    mount: Mount | None,
    disks: tuple[str, ...],
    model: str | None,
    rotational: bool | None,
    loops: tuple[Loop, ...] = (),
) -> str:
    """What kind of storage this is, from names alone: nothing is measured here."""
    if mount is None:
        return "unknown"
    if mount.kind in VIRTUAL_FILE_SYSTEMS:
        return KERNEL_VIEW
    if mount.kind in MEMORY_FILE_SYSTEMS or any(disk.startswith(_MEMORY_DISKS) for disk in disks):
        return MEMORY
    if any(loop.filesystem in MEMORY_FILE_SYSTEMS for loop in loops):
        return MEMORY
    if is_network(mount.kind):
        return "network"
    if mount.kind in _LAYERED:
        return "layered"
    words = (model or "").lower()
    if any(word in words for word in _REMOTE_MODELS) or any(disk.startswith("rbd") for disk in disks):
        return "remote disk"
    if any(word in words for word in _VIRTUAL_MODELS) or any(
        disk.startswith(("vd", "xvd")) for disk in disks
    ):
        return "virtual disk"
    if disks and all(disk.startswith("nvme") for disk in disks):
        return "nvme"
    if disks and all(disk.startswith("loop") for disk in disks):
        # Its file cannot be seen from here, and a loop device tells nothing of what lies below.
        return "unknown"
    return {True: "hard disk", False: "ssd", None: "unknown"}[rotational]


def _free(path: Path) -> int:
    try:
        figures = os.statvfs(path)
    except OSError:
        return 0
    return figures.f_bavail * figures.f_frsize
