"""bpftrace beside a process: how long its reads and writes take from entering the kernel to leaving it."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_CALLS = {
    "read": ("pread64", "preadv", "preadv2"),
    "write": ("pwrite64", "pwritev", "pwritev2"),
}
_START_SECONDS = 30

# bpftrace finds tracepoints through tracefs; a mount namespace of its own leaves the machine as it was.
_SHELL = "[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace "


def _by_verb() -> dict[str, list[int]]:
    return {verb: [] for verb in _CALLS}


@dataclass(slots=True)
class Seen:
    """Durations in nanoseconds by verb: of system calls, of block requests whole and inside the device."""

    read: list[int] = field(default_factory=list)
    write: list[int] = field(default_factory=list)
    block: dict[str, list[int]] = field(default_factory=_by_verb)
    device: dict[str, list[int]] = field(default_factory=_by_verb)
    lost: int = 0
    """Events that bpftrace could not deliver; above zero the comparison is void."""

    @property
    def calls(self) -> list[int]:
        return self.read + self.write


def missing() -> str | None:
    """Why bpftrace cannot watch here, or None."""
    if os.geteuid() != 0:
        return "bpftrace needs root"
    for tool in ("bpftrace", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if "tracefs" not in Path("/proc/filesystems").read_text():
        return "this kernel has no tracefs"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _SHELL + "-l 'tracepoint:syscalls:sys_enter_pread64'"],
        capture_output=True,
        text=True,
    )
    if "sys_enter_pread64" not in done.stdout:
        return f"bpftrace sees no system call tracepoints here: {done.stderr.strip()[-200:]}"
    return None


def program(pid: int, device: int, bytes_min: int) -> str:
    """Prints one line per finished call that moved at least bytes_min, and per block request it made."""
    parts = ['BEGIN { printf("ready\\n"); }']
    for verb, names in _CALLS.items():
        for name in names:
            at = f"@{name}[tid]"
            parts.append(f"tracepoint:syscalls:sys_enter_{name} /pid == {pid}/ {{ {at} = nsecs; }}")
            parts.append(
                f"tracepoint:syscalls:sys_exit_{name} /{at}/ {{ if (args->ret >= {bytes_min}) "
                f'{{ printf("{verb} %d\\n", nsecs - {at}); }} delete({at}); }}'
            )
    # A request starts in the process that asks for it, but may be issued by a kernel thread.
    for kind, start, end, whose in (
        ("block", "block_io_start", "block_io_done", f"pid == {pid}"),
        ("device", "block_rq_issue", "block_rq_complete", "@block[args->sector]"),
    ):
        at, here = f"@{kind}[args->sector]", f"args->dev == {device}"
        parts.append(f"tracepoint:block:{start} /{here} && {whose}/ {{ {at} = nsecs; }}")
        parts.append(
            f"tracepoint:block:{end} /{here} && {at}/ "
            f'{{ printf("{kind}-%s %d\\n", args->rwbs, nsecs - {at}); delete({at}); }}'
        )
    return "\n".join(parts)


def parse(lines: Sequence[str]) -> Seen:
    seen = Seen()
    for line in lines:
        kind, _, value = line.partition(" ")
        if kind == "Lost" and value.endswith("events"):
            seen.lost += int(value.split()[0])
        elif kind in _CALLS and value.strip().isdigit():
            getattr(seen, kind).append(int(value))
        elif kind.startswith(("block-", "device-")) and value.strip().isdigit():
            layer, _, flags = kind.partition("-")
            for verb in _CALLS:
                if verb[0].upper() in flags:
                    getattr(seen, layer)[verb].append(int(value))
    return seen


def kernel_device(path: Path) -> int:
    """The number by which tracepoints call the device behind a path: major << 20 | minor."""
    number = os.stat(path).st_dev
    return os.major(number) << 20 | os.minor(number)


@contextmanager
def watch(pid: int, path: Path, bytes_min: int) -> Iterator[Seen]:
    """Watch a process; what was seen is in the object after the block."""
    seen = Seen()
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "watch.bt"
        script.write_text(program(pid, kernel_device(path), bytes_min))
        output = Path(directory) / "out"
        with output.open("w") as sink:
            tracer = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", f"{_SHELL} -B line {script}"],
                stdout=sink,
                stderr=subprocess.STDOUT,
                # Every call is one line: the default ring would lose some in a burst.
                env={**os.environ, "BPFTRACE_PERF_RB_PAGES": "512"},
            )
        try:
            _wait_ready(tracer, output)
            yield seen
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(timeout=_START_SECONDS)
        found = parse(output.read_text().splitlines())
        seen.read, seen.write, seen.block = found.read, found.write, found.block
        seen.device, seen.lost = found.device, found.lost


def _wait_ready(tracer: "subprocess.Popen[bytes]", output: Path) -> None:
    waited = 0.0
    while "ready" not in output.read_text():
        try:
            status = tracer.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            waited += 0.1
        else:
            raise RuntimeError(f"bpftrace ended with status {status}: {output.read_text().strip()[-400:]}")
        if waited > _START_SECONDS:
            raise RuntimeError(f"bpftrace was not ready after {_START_SECONDS} s")
