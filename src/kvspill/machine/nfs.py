"""What the kernel's NFS client counts of a mount, from /proc/self/mountstats."""

import os
from dataclasses import dataclass, field

from kvspill.machine.kernel import Kernel
from kvspill.machine.mounts import Mount, unescaped
from kvspill.machine.processes import Counters

_BYTES = {"read_bytes": 4, "written_bytes": 5}
"""Places in the line `bytes:`: what the client asked of the server, page cache and direct I/O together."""
_OPERATIONS = {"READ": "read", "WRITE": "write"}
_COUNTS = ("operations", "transmissions", "timeouts", "", "", "queue_ms", "rtt_ms", "execute_ms", "errors")
"""The numbers of an operation's line; kernels before 5.3 have no errors."""


@dataclass(frozen=True, slots=True)
class NfsMount:
    """One mount as its client sees it."""

    options: dict[str, str]
    """As they are in force, by name; a plain word has an empty value."""
    connections: int
    """Connections to the server that are in use."""
    counters: Counters = field(default_factory=dict)
    """Bytes, and for READ and WRITE operations, transmissions, time-outs, and the milliseconds that all of
    them waited for a connection, for the server's answer, and took in all."""


def read_nfs_mount(mount: Mount, kernel: Kernel) -> NfsMount | None:
    """The figures of a mount; None where the kernel gives none."""
    try:
        text = (kernel.proc / "self" / "mountstats").read_bytes()
    except OSError:
        return None
    lines, inside = [], False
    for line in text.split(b"\n"):
        if line.startswith(b"device "):
            inside = _is_of(line, mount)
        elif inside:
            lines.append(os.fsdecode(line).strip())
    return _parsed(lines) if lines else None


def _is_of(line: bytes, mount: Mount) -> bool:
    """Whether the line `device SERVER mounted on POINT with fstype nfs4 …` speaks of this mount."""
    head, _, kind = line.partition(b" with fstype ")
    point = head.partition(b" mounted on ")[2]
    return kind.startswith(b"nfs") and os.fsdecode(unescaped(point)) == mount.point


def _parsed(lines: list[str]) -> NfsMount:
    options: dict[str, str] = {}
    counters: dict[str, int] = {}
    connections = 0
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == "opts":
            options = options_of(rest.strip())
        elif name == "xprt":
            connections += 1
        elif name == "bytes" and len(words) > max(_BYTES.values()):
            counters |= {key: int(words[place]) for key, place in _BYTES.items()}
        elif name in _OPERATIONS:
            pairs = zip(_COUNTS, words, strict=False)
            counters |= {f"{_OPERATIONS[name]}_{key}": int(word) for key, word in pairs if key}
    return NfsMount(options, connections, counters)


def options_of(text: str) -> dict[str, str]:
    """Mount options by name; a plain word has an empty value."""
    parts = (word.partition("=") for word in text.split(",") if word)
    return {name: value for name, _, value in parts}
