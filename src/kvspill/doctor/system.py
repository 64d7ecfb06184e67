"""Checks of the machine around the storage: kernel, processors, memory, limits, GPU and software."""

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from kvspill.doctor.doctor import Check, note, ok, problem, warning
from kvspill.machine.cgroups import cpu_limit
from kvspill.machine.gpu import has_nvidia_fs
from kvspill.machine.hardware import Gpu, Hardware, governors, io_uring_disabled, is_virtual, load_average
from kvspill.machine.kernel import Kernel
from kvspill.machine.memory import swap
from kvspill.records import GIB
from kvspill.texts import size_text

GROUP = "machine"
KERNEL_MIN = (5, 10)
MEMORY_BYTES_MIN = GIB
MEMORY_BYTES_GOOD = 8 * GIB
OPEN_FILES_MIN = 1024
BUSY_SHARE = 0.5
EXTRAS = {
    "report": (("jinja2", "openpyxl", "vl_convert"), "HTML pages and XLSX files"),
    "log": (("pyarrow", "zstandard"), "--log-ops and --io-trace-log"),
    "lct": (("msgpack",), "storage traces of LMCache (.lct)"),
    "metrics": (("prometheus_client",), "--prometheus"),
    "zstd": (("zstandard",), "traces that end in .zst"),
    "s3": (("boto3", "obstore"), "--cache-dir s3://…, az://…, gs://…"),
    "uring": (("liburing",), "--io-engine io_uring"),
    "mpi": (("mpi4py",), "several ranks"),
    "gpu": (("cuda",), "a GPU tier in a card's memory"),
    "nixl": (("nixl_cu13",), "--cache-dir nixl+posix://…"),
    "redis": (("redis",), "--cache-dir redis://…"),
    "tokens": (("tiktoken",), "exact token counts of ShareGPT texts"),
}
"""What may be installed besides: the modules of each extra, and what needs them."""
_GPU_FREE_SHARE = 0.9
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
        _cpu_quota(kernel),
        _load(hardware, kernel),
        _memory(hardware),
        _swap(kernel),
        _open_files(),
        _io_uring(kernel),
        *_gpus(hardware, kernel),
        *_extras(bool(hardware.gpus)),
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
    if is_virtual(kernel):
        text = "yes: other machines on its host can slow it, each run by another amount"
        remedy = (
            "run several trials (--trials 5), whose spread is that amount; use bare metal to judge a drive"
        )
        return warning(GROUP, "virtual machine", text, remedy)
    return ok(GROUP, "virtual machine", "none seen")


def _governor(kernel: Kernel) -> Check:
    chosen = governors(kernel)
    if not chosen:
        return ok(GROUP, "CPU governor", "not visible; the host or the firmware decides")
    text = ", ".join(sorted(chosen))
    if chosen != {"performance"}:
        remedy = "sudo cpupower frequency-set -g performance"
        return warning(GROUP, "CPU governor", f"{text}: clock changes add noise to latencies", remedy)
    return ok(GROUP, "CPU governor", text)


def _cpu_quota(kernel: Kernel) -> Check:
    """A limit on processor time hides as latency."""
    limit = cpu_limit(kernel)
    if limit is None:
        return ok(GROUP, "CPU limit", "no control group limits the processors")
    text = f"{limit:g} processors by a control group"
    return warning(GROUP, "CPU limit", text, "lift the limit, or state it with the result")


def _load(hardware: Hardware, kernel: Kernel) -> Check:
    load = load_average(kernel)
    if load is None:
        return ok(GROUP, "other load", "not visible")
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
    text = f"{size_text(available.nbytes)} available, limited by {available.limited_by}"
    if available.nbytes < MEMORY_BYTES_MIN:
        return problem(GROUP, "memory", f"{text}: too little for a run", "free memory or raise the limit")
    if available.nbytes < MEMORY_BYTES_GOOD:
        return warning(GROUP, "memory", f"{text}: little room for a DRAM tier", "give a small --cpu-mem-gb")
    return ok(GROUP, "memory", text)


def _swap(kernel: Kernel) -> Check:
    found = swap(kernel)
    if found is None:
        return ok(GROUP, "swap", "none")
    text = f"{size_text(found.total_bytes)}, {size_text(found.used_bytes)} in use"
    if found.used_bytes:
        return warning(GROUP, "swap", f"{text}: swapped memory adds disk I/O", "sudo swapoff -a during runs")
    return ok(GROUP, "swap", text)


def _open_files() -> Check:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_MIN:
        return warning(GROUP, "open files", f"at most {soft}", f"ulimit -n {OPEN_FILES_MIN}")
    return ok(GROUP, "open files", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def _io_uring(kernel: Kernel) -> Check:
    disabled = io_uring_disabled(kernel)
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


def _gpus(hardware: Hardware, kernel: Kernel) -> list[Check]:
    if hardware.gpus:
        cards = [check for gpu in hardware.gpus for check in _gpu(gpu)]
        return [*cards, _gpu_software(hardware), _gpu_direct(kernel)]
    text = "none; a GPU tier is modelled and labelled so"
    if Path("/dev/kfd").exists():
        text = "an AMD driver, which the GPU tier does not use; the tier is modelled"
    return [ok(GROUP, "GPU", text), ok(GROUP, "GPU software", "not needed without a card")]


def _gpu(gpu: Gpu) -> Iterator[Check]:
    free = "" if gpu.free_bytes is None else f", {gpu.free_bytes / GIB:.0f} free"
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    yield ok(GROUP, "GPU", f"{gpu.name} ({gpu.memory_bytes / GIB:.0f} GiB{free}{driver})")
    if gpu.link is not None:
        text = (
            f"PCIe {gpu.link.generation} x{gpu.link.lanes}; the card and its slot can do PCIe "
            f"{gpu.link.generation_max} x{gpu.link.lanes_max}"
        )
        remedy = "puts and demotions run at a part of their speed; see the slot, its riser and the BIOS"
        yield ok(GROUP, "GPU link", text) if gpu.link.whole else warning(GROUP, "GPU link", text, remedy)
    if gpu.uncorrected_errors:
        text = (
            f"{gpu.uncorrected_errors:,} uncorrected errors of the card's memory since the driver was loaded"
        )
        yield warning(GROUP, "GPU memory", text, "reset the card (nvidia-smi -r), or have it replaced")
    if gpu.free_bytes is not None and gpu.free_bytes < _GPU_FREE_SHARE * gpu.memory_bytes:
        used = (gpu.memory_bytes - gpu.free_bytes) / GIB
        text = f"{used:.1f} GiB of the card's memory are in use by other processes"
        yield warning(GROUP, "GPU memory", text, "end them, or results are of a card that they share")


def _gpu_software(hardware: Hardware) -> Check:
    if hardware.gpu_unusable is None:
        return ok(GROUP, "GPU software", "cuda-bindings: a GPU tier is real")
    reason, _, remedy = hardware.gpu_unusable.partition("; ")
    return warning(GROUP, "GPU software", f"{reason}, so the GPU tier is modelled", remedy)


def _gpu_direct(kernel: Kernel) -> Check:
    if has_nvidia_fs(kernel):
        text = "nvidia-fs is loaded; a run says whether its file system takes part (--gpu-direct)"
    else:
        text = "nvidia-fs is not loaded: bytes between storage and GPU go through registered host memory"
    return ok(GROUP, "GPUDirect Storage", text)


def _extras(has_gpu: bool) -> list[Check]:
    checks = []
    for extra, (modules, purpose) in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if missing and extra == "gpu" and not has_gpu:
            checks.append(ok("extras", extra, "not installed; not needed without a card"))
        elif missing:
            text = f"{', '.join(missing)} not installed; needed for {purpose}"
            say = warning if extra == "gpu" else note
            checks.append(say("extras", extra, text, f"pip install 'kvspill[{extra}]'"))
        else:
            checks.append(ok("extras", extra, f"installed ({', '.join(modules)})"))
    return checks
