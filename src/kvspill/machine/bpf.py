"""bpftrace beside this process: system calls and block requests as lines, for the layers of latency."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kvspill.errors import KvspillError, UsageError
from kvspill.machine.kernel import Kernel, read_text

FLAG: Final = "--trace-latency"
_READS, _WRITES = ("pread64", "preadv", "preadv2"), ("pwrite64", "pwritev", "pwritev2")
_START_SECONDS_MAX = 30.0
_STOP_SECONDS_MAX = 10.0
_RING_PAGES = "2048"
"""Room for a burst of lines; what does not fit is lost and counted."""
# bpftrace finds tracepoints through tracefs; a mount namespace of its own leaves the machine as it was.
_SHELL = "[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace "


def check_tracing() -> None:
    """Refuse where bpftrace can't watch, with the reason and what to do."""
    if os.geteuid() != 0:
        raise UsageError(
            f"{FLAG}: needs root, to see system calls and block requests in the kernel; run it with sudo, or "
            "leave it out: the device's utilisation, await and queue are in every result"
        )
    for tool in ("bpftrace", "unshare"):
        if shutil.which(tool) is None:
            raise UsageError(f"{FLAG}: {tool} is not installed; install it, as with: apt-get install {tool}")
    if "tracefs" not in (read_text(Path("/proc/filesystems")) or ""):
        raise UsageError(f"{FLAG}: this kernel has no tracefs; leave it out")


def program(pid: int, devices: Iterable[int]) -> str:
    """One line per finished call (c), bio that a call queued (q), request issued (i) and done (d)."""
    here = " || ".join(f"args->dev == {device}" for device in devices)
    parts = ['BEGIN { printf("ready\\n"); }']
    for verb, names in (("read", _READS), ("write", _WRITES)):
        for name in names:
            parts += [
                f"tracepoint:syscalls:sys_enter_{name} /pid == {pid}/ {{ @c[tid] = nsecs; }}",
                f"tracepoint:syscalls:sys_exit_{name} /@c[tid]/ {{ "
                f'printf("c {verb} %d %lld %lld %lld\\n", tid, @c[tid], nsecs, args->ret); '
                "delete(@c[tid]); }",
            ]
    parts += [
        f"tracepoint:block:block_bio_queue /@c[tid] && ({here})/ {{ "
        'printf("q %d %lld %d %lld %lld\\n", tid, nsecs, args->dev, args->sector, args->nr_sector); }',
        # Also those that others asked for: a request may be issued by a thread of the kernel, and nothing in
        # it tells whose bios it holds.
        f"tracepoint:block:block_rq_issue /{here}/ {{ "
        'printf("i %lld %d %lld %lld\\n", nsecs, args->dev, args->sector, args->nr_sector); }',
        f"tracepoint:block:block_rq_complete /{here}/ {{ "
        'printf("d %lld %d %lld\\n", nsecs, args->dev, args->sector); }',
        "END { clear(@c); }",
    ]
    return "\n".join(parts)


def device_numbers(names: Iterable[str], kernel: Kernel) -> list[int]:
    """How tracepoints call devices of these names, partitions and their disks: major << 20 | minor."""
    found = []
    for name in names:
        text = read_text(kernel.sys / "class" / "block" / name / "dev")
        if text is not None:
            major, _, minor = text.strip().partition(":")
            found.append(int(major) << 20 | int(minor))
    return sorted(set(found))


class BlockTracer:
    """bpftrace, from start to stop; what it wrote is read once it has ended."""

    def __init__(self, devices: Iterable[int], pid: int | None = None):
        """Watch that process, or this one."""
        self._directory = tempfile.TemporaryDirectory(prefix="kvspill-trace-")
        self._output = Path(self._directory.name) / "lines"
        script = Path(self._directory.name) / "layers.bt"
        script.write_text(program(os.getpid() if pid is None else pid, devices))
        with self._output.open("wb") as sink:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", f"{_SHELL} -B full {script}"],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "BPFTRACE_PERF_RB_PAGES": _RING_PAGES},
                start_new_session=True,
            )
        self.cpu_seconds = 0.0
        """After stop: processor time that bpftrace itself took."""

    def wait_ready(self) -> None:
        """Wait until the kernel has taken the program; it is not that busy before."""
        until = time.monotonic() + _START_SECONDS_MAX
        while b"Attaching" not in self._output.read_bytes():
            if self._process.poll() is not None or time.monotonic() > until:
                said = " ".join(self._output.read_text(errors="replace").split())[-300:]
                self.stop()
                raise KvspillError(
                    f"{FLAG}: bpftrace did not start tracing ({said}); leave it out, or look into that"
                )
            time.sleep(0.05)

    def stop(self) -> list[str]:
        """End it and return its lines."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
            until = time.monotonic() + _STOP_SECONDS_MAX
            while self._process.returncode is None:
                pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
                if pid:
                    self._process.returncode = os.waitstatus_to_exitcode(status)
                    self.cpu_seconds = usage.ru_utime + usage.ru_stime
                elif time.monotonic() > until:
                    self._process.kill()
                    self._process.wait()
                else:
                    time.sleep(0.02)
        lines = self._output.read_text(errors="replace").splitlines() if self._output.exists() else []
        self._directory.cleanup()
        return lines
