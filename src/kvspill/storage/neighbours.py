"""Other runs on the same file systems, seen by their locks: what they claim, hold and move (R5)."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvspill.errors import UsageError
from kvspill.machine.kernel import Kernel
from kvspill.machine.launcher import launched
from kvspill.machine.probes import SECTOR_BYTES
from kvspill.machine.processes import Counters, lock_holders, open_files, process_io
from kvspill.storage.rundir import CLAIM, DIRECTORY, MARKER, RunDir, is_run_name, list_entries
from kvspill.texts import size_text

_CLAIM_BYTES_MAX = 4096
_CLAIM_SLACK = 1.05
"""What neighbours hold and what is free are not read at one moment."""


class OvertakenError(UsageError):
    """Another run, which planned at the same time, claimed the room first."""


@dataclass(slots=True)
class Neighbour:
    """Another run that is alive, with a run directory on one file system or more."""

    pid: int | None
    """None where it runs on another machine, or in a container whose processes we don't see."""
    job: str = ""
    """The launch that it belongs to; empty where it was started by hand."""
    claimed_bytes: dict[int, int] = field(default_factory=dict)
    """What it may hold at most, by file system (st_dev)."""
    held_bytes: dict[int, int] = field(default_factory=dict)
    """What it holds now, likewise."""
    claimed_ns: int = 0
    """When it made its claim, by the clock of the file system; 0 where it made none."""
    directories: int = 0
    inodes: set[tuple[int, int]] = field(default_factory=set)

    def missing_bytes(self, device: int) -> int:
        """What it may still take of a file system's free space."""
        return max(0, self.claimed_bytes.get(device, 0) - self.held_bytes.get(device, 0))


def claim(run: RunDir, nbytes: int) -> None:
    """Tell other runs how much this one will hold at most in its directory."""
    here = launched()
    text = json.dumps({"claimed_bytes": nbytes, "job": "" if here is None else here.job})
    # Without it others go by the free space alone, as where a file system is full.
    with contextlib.suppress(OSError):
        fd = os.open(CLAIM, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=run.fd)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def check_claim(run: RunDir, nbytes: int) -> None:
    """Raise OvertakenError where earlier claims of others leave less free than was claimed here.

    Runs that start at the same moment plan before they see each other; the later claim gives way.
    """
    here, status = launched(), os.fstat(run.fd)
    mine = _claimed_ns(run.fd), os.getpid()
    first = [
        other
        for other in neighbours([run.root])
        if (other.claimed_ns, other.pid or 0) < mine and not (here is not None and other.job == here.job)
    ]
    missing = sum(other.missing_bytes(status.st_dev) for other in first)
    figures = os.fstatvfs(run.fd)
    left = max(0, figures.f_bavail * figures.f_frsize - missing)
    if missing and nbytes > left * _CLAIM_SLACK:
        raise OvertakenError(
            f"cache directory {run.root}: a run that started at the same time may take {size_text(missing)} "
            f"and leaves {size_text(left)}; give a smaller --storage-capacity-gb, or start them one by one"
        )


def _claimed_ns(run_fd: int) -> int:
    try:
        return os.stat(CLAIM, dir_fd=run_fd, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def neighbours(roots: Iterable[Path] = (), kernel: Kernel | None = None) -> list[Neighbour]:
    """The runs of other processes: those of this machine, and those with a held lock below these roots."""
    kernel = kernel or Kernel()
    found, seen = [], _own_directories(kernel)
    for pid, links in _runs(kernel):
        neighbour = Neighbour(pid)
        for link in links:
            _add(neighbour, link, seen)
        if neighbour.directories:
            found.append(neighbour)
            seen |= neighbour.inodes
    for root in roots:
        for path in _locked_below(root):
            neighbour = Neighbour(None)
            _add(neighbour, path, seen)
            if neighbour.directories:
                found.append(neighbour)
                seen |= neighbour.inodes
    return found


def _runs(kernel: Kernel) -> Iterator[tuple[int, list[Path]]]:
    """Processes with the run directories that they hold: open there, and locked by them.

    Who only looks at another's directory has it open for a moment, too.
    """
    for pid, locked in lock_holders(kernel).items():
        held = []
        for link, name in open_files(pid, kernel):
            if is_run_name(os.path.basename(name)):
                with contextlib.suppress(OSError):
                    if os.stat(link / MARKER).st_ino in locked:
                        held.append(link)
        if held:
            yield pid, held


def _own_directories(kernel: Kernel) -> set[tuple[int, int]]:
    own = set()
    for link, name in open_files(os.getpid(), kernel):
        if is_run_name(os.path.basename(name)):
            with contextlib.suppress(OSError):
                status = os.stat(link)
                own.add((status.st_dev, status.st_ino))
    return own


def _add(neighbour: Neighbour, path: Path, seen: set[tuple[int, int]]) -> None:
    """Add a run directory that a path leads to, unless it is known already."""
    try:
        fd = os.open(path, DIRECTORY & ~os.O_NOFOLLOW)
    except OSError:
        return
    try:
        status = os.fstat(fd)
        inode = status.st_dev, status.st_ino
        if inode in seen or inode in neighbour.inodes:
            return
        neighbour.inodes.add(inode)
        neighbour.directories += 1
        said = _claim_of(fd)
        neighbour.job = neighbour.job or str(said.get("job", ""))
        neighbour.claimed_ns = max(neighbour.claimed_ns, _claimed_ns(fd))
        nbytes = said.get("claimed_bytes", 0)
        for total, more in (
            (neighbour.claimed_bytes, nbytes if isinstance(nbytes, int) else 0),
            (neighbour.held_bytes, _held(fd)),
        ):
            total[status.st_dev] = total.get(status.st_dev, 0) + more
    except OSError:
        # Its disk does not answer.
        return
    finally:
        _close(fd)


def _claim_of(run_fd: int) -> Mapping[str, object]:
    try:
        fd = os.open(CLAIM, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=run_fd)
    except OSError:
        return {}
    try:
        said = json.loads(os.read(fd, _CLAIM_BYTES_MAX))
    except (OSError, ValueError):
        return {}
    finally:
        _close(fd)
    return said if isinstance(said, dict) else {}


def _held(fd: int) -> int:
    """Bytes of the files in a directory and below, as far as it can be read."""
    held = 0
    for name, is_dir in _listed(fd):
        try:
            if not is_dir:
                held += os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * SECTOR_BYTES
                continue
            inner = os.open(name, DIRECTORY, dir_fd=fd)
        except OSError:
            continue
        try:
            held += _held(inner)
        finally:
            _close(inner)
    return held


def _close(fd: int) -> None:
    """What was only looked at loses nothing where that fails."""
    with contextlib.suppress(OSError):
        os.close(fd)


def _listed(fd: int) -> list[tuple[str, bool]]:
    try:
        return list_entries(fd)
    except OSError:
        return []


def _locked_below(root: Path) -> Iterator[Path]:
    """Run directories whose lock somebody holds."""
    try:
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for name, is_dir in sorted(_listed(root_fd)):
            if is_dir and is_run_name(name) and _is_locked(root_fd, name):
                yield root / name
    finally:
        _close(root_fd)


def _is_locked(root_fd: int, name: str) -> bool:
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(f"{name}/{MARKER}", flags, dir_fd=root_fd)
    except OSError:
        return False
    try:
        # A shared lock for a moment: a cleaner takes it for a run that is alive, and comes again later.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        _close(fd)
    return False


def _devices(paths: Iterable[Path]) -> list[int]:
    """The file systems of those that are there and answer."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found.append(os.stat(path).st_dev)
    return found


class Traffic:
    """What other runs on the file systems of some directories moved while it looked."""

    def __init__(self, directories: Iterable[Path], kernel: Kernel | None = None):
        self._kernel = kernel or Kernel()
        self._directories = tuple(directories)
        self._devices: set[int] | None = None
        self._first: dict[int, Counters] = {}
        self._last: dict[int, Counters] = {}
        self._shares: dict[int, float] = {}

    def look(self) -> None:
        """Note how far every such run has come; call it every second or so, as runs come and go."""
        if self._devices is None:
            self._devices = set(_devices(self._directories))
        for pid, share in self._there(self._devices):
            counters = process_io(pid, self._kernel)
            if counters is not None:
                self._first.setdefault(pid, counters)
                self._last[pid] = counters
                self._shares[pid] = share

    def _there(self, devices: set[int]) -> Iterator[tuple[int, float]]:
        """The other runs, each with the share of its directories that lie here."""
        for pid, links in _runs(self._kernel) if devices else ():
            found = _devices(links)
            here = sum(device in devices for device in found)
            if here:
                yield pid, here / len(found)

    def moved(self) -> dict[str, int]:
        """How many runs there were, and the bytes that they read and wrote."""
        totals = {"runs": len(self._last)}
        for key in ("read_bytes", "written_bytes"):
            totals[key] = round(
                sum(
                    (self._last[pid][key] - self._first[pid][key]) * share
                    for pid, share in list(self._shares.items())
                )
            )
        return totals
