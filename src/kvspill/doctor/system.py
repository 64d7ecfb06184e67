"""Checks of the machine around the storage: kernel, processors, memory, limits, GPU and software."""

import ctypes
import os
import platform
import sys
from importlib.util import find_spec
from pathlib import Path

from kvspill.doctor.doctor import Check, ok, problem, warning
from kvspill.machine.hardware import Hardware, field_of
from kvspill.machine.mounts import Kernel, read_text
from kvspill.records import GIB

GROUP = "machine"
KERNEL_MIN = (5, 10)
MEMORY_BYTES_MIN = GIB
MEMORY_BYTES_GOOD = 8 * GIB
OPEN_FILES_MIN = 1024
BUSY_SHARE = 0.5
EXTRAS = {
    "report": (("jinja2", "openpyxl", "vl_convert"), "HTML pages and XLSX files"),
    "log": (("pyarrow",), "--log-ops"),
    "uring": (("liburing",), "--io-engine io_uring"),
    "tokens": (("tiktoken",), "exact token counts of ShareGPT texts"),
}
"""What may be installed besides: the modules of each extra, and what needs them."""
_IO_URING_SETUP = 425
_IO_URING_PARAMS_BYTES = 120


def system_checks(hardware: Hardware, kernel: Kernel) -> list[Check]:
    """All checks that do not depend on a directory."""
    return [
        _operating_system(),
        _python(),
        _helper(),
        _virtual(kernel),
        _governor(kernel),
        *_cpu_quota(kernel),
        _load(hardware, kernel),
        _memory(hardware),
        _swap(kernel),
        _open_files(),
        _io_uring(kernel),
        _gpu(hardware),
        _gpu_software(hardware),
        *_extras(),
    ]


def _operating_system() -> Check:
    release = platform.release()
    if platform.system() != "Linux":
        text = f"{platform.system()} {release}: direct I/O and device counters are Linux features"
        return problem(GROUP, "kernel", text, "run it on Linux")
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < KERNEL_MIN:
        return warning(GROUP, "kernel", f"Linux {release}: old", "use Linux 5.10 or newer")
    return ok(GROUP, "kernel", f"Linux {release}")


def _python() -> Check:
    text = f"Python {sys.version.split()[0]}"
    if sys.version_info < (3, 11):  # noqa: UP036 - the doctor may be run from a checkout
        return problem(GROUP, "Python", text, "use Python 3.11 or newer")
    return ok(GROUP, "Python", text)


def _helper() -> Check:
    from kvspill.storage.fastio import COMPILED

    if COMPILED:
        return ok(GROUP, "timing helper", "compiled: device times don't wait for the interpreter")
    text = "not compiled: device times include a wait for the interpreter"
    return warning(GROUP, "timing helper", text, "install a C compiler and reinstall kvspill")


def _virtual(kernel: Kernel) -> Check:
    flags = (field_of(kernel.proc / "cpuinfo", "flags") or "").split()
    if "hypervisor" in flags:
        text = "a virtual machine: neighbours can change results, and the first touch of memory is slow"
        return warning(GROUP, "virtual machine", text, "run several trials; use bare metal to judge a drive")
    return ok(GROUP, "virtual machine", "none seen")


def _governor(kernel: Kernel) -> Check:
    folders = (kernel.sys / "devices" / "system" / "cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    governors = {(read_text(path) or "").strip() for path in folders}
    if not governors:
        return ok(GROUP, "CPU governor", "not visible; the host or the firmware decides")
    text = ", ".join(sorted(governors))
    if governors != {"performance"}:
        remedy = "sudo cpupower frequency-set -g performance"
        return warning(GROUP, "CPU governor", f"{text}: clock changes add noise to latencies", remedy)
    return ok(GROUP, "CPU governor", text)


def _cpu_quota(kernel: Kernel) -> list[Check]:
    """A limit on processor time hides as latency."""
    root = kernel.sys / "fs" / "cgroup"
    for line in (read_text(kernel.proc / "self" / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        inner = path.lstrip("/")
        if "cpu" in controllers.split(","):
            quota = (read_text(root / "cpu" / inner / "cpu.cfs_quota_us") or "").strip()
            period = (read_text(root / "cpu" / inner / "cpu.cfs_period_us") or "").strip()
        elif not controllers:
            quota, _, period = (read_text(root / inner / "cpu.max") or "").strip().partition(" ")
        else:
            continue
        if quota.isdigit() and period.isdigit() and int(period):
            text = f"{int(quota) / int(period):g} processors by a control group"
            return [warning(GROUP, "CPU limit", text, "lift the limit, or state it with the result")]
    return [ok(GROUP, "CPU limit", "no control group limits the processors")]


def _load(hardware: Hardware, kernel: Kernel) -> Check:
    words = (read_text(kernel.proc / "loadavg") or "").split()
    if not words:
        return ok(GROUP, "other load", "not visible")
    load = float(words[0])
    text = f"load {load:.2f} on {hardware.cpu_count} processors"
    if load > BUSY_SHARE * hardware.cpu_count:
        return warning(
            GROUP, "other load", f"{text}: the machine is busy", "stop other work and wait a minute"
        )
    return ok(GROUP, "other load", text)


def _memory(hardware: Hardware) -> Check:
    available = hardware.memory_available
    if available is None:
        return warning(GROUP, "memory", "not visible", "give a small --cpu-mem-gb")
    text = f"{available.nbytes / GIB:.1f} GiB available, limited by {available.limited_by}"
    if available.nbytes < MEMORY_BYTES_MIN:
        return problem(GROUP, "memory", f"{text}: too little for a run", "free memory or raise the limit")
    if available.nbytes < MEMORY_BYTES_GOOD:
        return warning(GROUP, "memory", f"{text}: little room for a DRAM tier", "give a small --cpu-mem-gb")
    return ok(GROUP, "memory", text)


def _swap(kernel: Kernel) -> Check:
    rows = [line.split() for line in (read_text(kernel.proc / "swaps") or "").splitlines()[1:]]
    used_kib = sum(int(row[3]) for row in rows if len(row) > 3 and row[3].isdigit())
    total_kib = sum(int(row[2]) for row in rows if len(row) > 3 and row[2].isdigit())
    if not rows:
        return ok(GROUP, "swap", "none")
    text = f"{total_kib / 1024**2:.1f} GiB, {used_kib / 1024**2:.1f} GiB in use"
    if used_kib:
        return warning(GROUP, "swap", f"{text}: swapped memory adds disk I/O", "sudo swapoff -a during runs")
    return ok(GROUP, "swap", text)


def _open_files() -> Check:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_MIN:
        return warning(GROUP, "open files", f"at most {soft}", f"ulimit -n {OPEN_FILES_MIN}")
    return ok(GROUP, "open files", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def _io_uring(kernel: Kernel) -> Check:
    disabled = (read_text(kernel.proc / "sys" / "kernel" / "io_uring_disabled") or "").strip()
    reason = _try_io_uring()
    if reason is None:
        return ok(GROUP, "io_uring", "works (a ring was set up)")
    setting = f", kernel.io_uring_disabled={disabled}" if disabled else ""
    remedy = "I/O goes by threads, which needs nothing; sudo sysctl kernel.io_uring_disabled=0 allows it"
    return warning(GROUP, "io_uring", f"refused ({reason}{setting})", remedy)


def _try_io_uring() -> str | None:
    """Set up a ring of one entry; None where that works, else why not."""
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = (ctypes.c_uint8 * _IO_URING_PARAMS_BYTES)()
    fd = libc.syscall(_IO_URING_SETUP, 1, parameters)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    os.close(fd)
    return None


def _gpu(hardware: Hardware) -> Check:
    if hardware.gpus:
        listed = ", ".join(f"{gpu.name} ({gpu.memory_bytes / GIB:.0f} GiB)" for gpu in hardware.gpus)
        return ok(GROUP, "GPU", listed)
    if Path("/dev/kfd").exists():
        return ok(GROUP, "GPU", "an AMD driver, which the GPU tier does not use; the tier is modelled")
    return ok(GROUP, "GPU", "none; a GPU tier is modelled and labelled so")


def _gpu_software(hardware: Hardware) -> Check:
    if not hardware.gpus:
        return ok(GROUP, "GPU software", "not needed without a card")
    if hardware.gpu_software:
        return ok(GROUP, "GPU software", ", ".join(hardware.gpu_software))
    text = "neither torch nor cupy is installed, so the GPU tier is modelled"
    return warning(GROUP, "GPU software", text, "python3 -m pip install torch")


def _extras() -> list[Check]:
    checks = []
    for extra, (modules, purpose) in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if missing:
            text = f"{', '.join(missing)} not installed; needed for {purpose}"
            checks.append(warning("extras", extra, text, f"pip install 'kvspill[{extra}]'"))
        else:
            checks.append(ok("extras", extra, f"installed ({', '.join(modules)})"))
    return checks
