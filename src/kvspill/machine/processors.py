"""The processors that this process may use, by the memory that each is near to."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvspill.machine.kernel import Kernel, read_text


def usable_processors() -> int:
    """How many processors this process may run on: its affinity, which a container or taskset limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_ticks(kernel: Kernel | None = None) -> dict[str, int] | None:
    """How long the usable processors were `busy`, of `all` the time since the start; None where nobody tells.

    What a machine around this one took of them counts as busy.
    """
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    rows = [line.split() for line in (read_text((kernel or Kernel()).proc / "stat") or "").splitlines()]
    # User, nice, system, idle, waiting for I/O, two kinds of interrupts, stolen; guests are in user already.
    found = [list(map(int, row[1:9])) for row in rows if row and row[0] in names and len(row) > 8]
    if not found:
        return None
    every, idle = sum(map(sum, found)), sum(ticks[3] + ticks[4] for ticks in found)
    return {"busy": every - idle, "all": every}


def memory_nodes(kernel: Kernel | None = None, usable: frozenset[int] | None = None) -> list[frozenset[int]]:
    """The usable processors of each NUMA node that has some; one node where the kernel names none."""
    usable = frozenset(os.sched_getaffinity(0)) if usable is None else usable
    folder = (kernel or Kernel()).sys / "devices" / "system" / "node"
    found = [_listed(read_text(path / "cpulist") or "") & usable for path in _nodes(folder)]
    return [processors for processors in found if processors] or [usable]


def nodes_near(
    pci_addresses: Sequence[str], kernel: Kernel | None = None, usable: frozenset[int] | None = None
) -> list[frozenset[int]]:
    """Those nodes that devices are attached to; all of them where the kernel names none."""
    nodes = memory_nodes(kernel, usable)
    near = frozenset[int]().union(*(_attached(address, kernel) for address in pci_addresses))
    return [node for node in nodes if node & near] or nodes


@contextmanager
def near_device(pci_address: str, kernel: Kernel | None = None) -> Iterator[None]:
    """Run on processors of the NUMA node that a device is attached to, where the kernel names one.

    Memory that is touched first meanwhile lies on that node.
    """
    before = os.sched_getaffinity(0)
    near = _attached(pci_address, kernel) & before
    if not near or near == before:
        yield
        return
    os.sched_setaffinity(0, near)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _attached(pci_address: str, kernel: Kernel | None) -> frozenset[int]:
    """The processors of the node that a device is attached to; none where the kernel does not say."""
    folder = (kernel or Kernel()).sys / "bus" / "pci" / "devices" / pci_address.lower()
    return _listed(read_text(folder / "local_cpulist") or "")


def _nodes(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.removeprefix("node").isdecimal())
    except OSError:
        return []


def _listed(text: str) -> frozenset[int]:
    """Processors from the kernel's notation, such as 0-3,8."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)
