"""Processor time and bytes of a process that runs, seen from outside: for programs that round their own."""

import time
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.01
_NS_PER_SEC = 1e9


@dataclass(frozen=True, slots=True)
class Sample:
    """What the threads that live now have used so far, and what the process has moved."""

    cpu_ns: int
    device_bytes: int
    call_bytes: int
    threads: int

    @property
    def nbytes(self) -> int:
        """Bytes at the device, or by system calls where there is no device, as on tmpfs.

        The larger: a device also gives the program's own pages, and rings make no calls.
        """
        return max(self.device_bytes, self.call_bytes)


def sample(pid: int, proc: Path = Path("/proc")) -> Sample | None:
    """None once the process is gone, or has ended and waits to be asked for its status."""
    try:
        if (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
            return None
        fields = dict(line.split(": ") for line in (proc / str(pid) / "io").read_text().splitlines())
        tasks = list((proc / str(pid) / "task").iterdir())
        cpu_ns = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    except (OSError, ValueError):
        # A thread may end between being listed and being read: then the middle of the run is over.
        return None
    device = int(fields["read_bytes"]) + int(fields["write_bytes"])
    return Sample(cpu_ns, device, int(fields["rchar"]) + int(fields["wchar"]), len(tasks))


def cpu_seconds_per_byte(
    pid: int, first_bytes: int, skip_seconds: float, span_seconds: float
) -> float | None:
    """Watch the middle of a run: from skip_seconds after it has moved first_bytes, for span_seconds.

    None where it ended before, or where nothing was seen to move.
    """
    while True:
        now = sample(pid)
        if now is None:
            return None
        if now.nbytes >= first_bytes:
            break
        time.sleep(_LOOK_SECONDS)
    time.sleep(skip_seconds)
    first = sample(pid)
    time.sleep(span_seconds)
    last = sample(pid)
    if first is None or last is None or last.threads < first.threads or last.nbytes <= first.nbytes:
        return None
    return (last.cpu_ns - first.cpu_ns) / _NS_PER_SEC / (last.nbytes - first.nbytes)
