"""Who shares a run's file systems: ranks of its launch divide the free space, others keep theirs (R5)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.config import Config
from kvspill.machine.kernel import Kernel, boot_id
from kvspill.machine.launcher import Launched, launched, placed
from kvspill.machine.mounts import file_system, find_mount
from kvspill.machine.network import is_network
from kvspill.run.stores import addresses, own_addresses, store_of
from kvspill.storage.addresses import directory_of
from kvspill.storage.neighbours import Neighbour, neighbours
from kvspill.texts import size_text

FileSystem = tuple[str, str]
"""The same on every rank that uses it, and on no other."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The others on each file system, which goes by its number (st_dev)."""

    ranks: Mapping[int, int]
    """Ranks of this launch on a file system, this one included; one where it has none."""
    job: str = ""
    others: Sequence[Neighbour] = ()
    """Runs that are alive, those of the same launch included."""
    together: bool = False
    """The ranks are one run: a capacity that was given is that of all of them on a file system."""

    def part_bytes(self, free_bytes: int, device: int) -> int:
        """What this run may take of a file system's free space."""
        for other in self.others:
            if self._is_mate(other):
                # What another rank has written already is part of what is divided.
                free_bytes += other.held_bytes.get(device, 0)
            else:
                free_bytes -= other.missing_bytes(device)
        return max(0, free_bytes) // self.ranks.get(device, 1)

    def given_bytes(self, nbytes: int) -> int:
        """What this rank has of a capacity that was given."""
        return nbytes // max(self.ranks.values(), default=1) if self.together else nbytes

    def _is_mate(self, other: Neighbour) -> bool:
        return bool(self.job) and other.job == self.job

    def said(self, devices: Sequence[int]) -> str:
        """Why not all of the free space is this run's, as the end of a clause; empty where it is."""
        ranks = max((self.ranks.get(device, 1) for device in devices), default=1)
        texts = [f"divided among {ranks} ranks"] if ranks > 1 else []
        for other in self.others:
            nbytes = sum(other.missing_bytes(device) for device in set(devices))
            if nbytes and not self._is_mate(other):
                whose = "of another machine" if other.pid is None else f"with process number {other.pid}"
                texts.append(f"without {size_text(nbytes)} that a run {whose} may still take")
        return f" ({', '.join(texts)})" if texts else ""


def find_sharing(config: Config, dirs: Sequence[Path], launch: Launched | None = None) -> Sharing:
    """Who is there now; the launch is what the launcher's environment says, unless given (R6)."""
    launch = launch or launched()
    others = neighbours(dirs)
    if launch is None or launch.size == 1 or launch.local_size is None:
        return Sharing({}, others=others)
    return Sharing(_ranks(config, dirs, launch), launch.job, others)


def _ranks(config: Config, dirs: Sequence[Path], launch: Launched) -> dict[int, int]:
    """How many ranks use each file system: directories with {rank} may lie on several."""
    texts = config.cache_dir or (".",)
    devices = {os.stat(path).st_dev: path for path in dirs}
    counts = dict.fromkeys(devices, 0)
    for rank in range(launch.size):
        used = {_device_of(Path(directory_of(placed(text, rank)))) for text in texts}
        for device in used & devices.keys():
            counts[device] += 1
    for device, path in devices.items():
        # Only a file system of the network is shared with ranks on other machines.
        if not is_network(file_system(path)):
            counts[device] = min(counts[device], launch.local_size or 1)
    return {device: max(1, count) for device, count in counts.items()}


def _device_of(path: Path) -> int:
    """Where a directory lies, or will lie once another rank has made it."""
    for place in (path.absolute(), *path.absolute().parents):
        try:
            return os.stat(place).st_dev
        except OSError:
            continue
    return -1


def file_system_at(path: Path) -> FileSystem:
    """That of a directory."""
    mount = find_mount(path, Kernel())
    if mount is not None and is_network(mount.kind):
        return mount.kind, mount.source
    return boot_id(), str(os.stat(path).st_dev)


def places_of(config: Config, dirs: Sequence[Path]) -> tuple[str, ...]:
    """The file systems or stores that this rank keeps its entries on; none where they are its own alone."""
    if dirs:
        return tuple(sorted({" ".join(file_system_at(path)) for path in dirs}))
    return tuple(sorted(map(store_of, own_addresses(config)))) if addresses(config) else ()
