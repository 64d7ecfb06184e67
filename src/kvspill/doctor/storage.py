"""Checks of a directory for the storage tier: file system, direct I/O, device, queue and space."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvspill.doctor.doctor import ADDRESS, DIRECTORY, Check, ok, problem, warning
from kvspill.doctor.network import network_checks
from kvspill.errors import KvspillError
from kvspill.machine.cgroups import io_limits
from kvspill.machine.hardware import KERNEL_VIEW, MEMORY, Place, cannot_be_made, read_ahead_kib
from kvspill.machine.kernel import Kernel
from kvspill.machine.mounts import MEMORY_FILE_SYSTEMS, Loop
from kvspill.outputs import WRITING_SECONDS_MAX
from kvspill.plugins import Found, Need
from kvspill.records import GIB
from kvspill.run.stores import FREE_SPACE_SHARE
from kvspill.storage.addresses import backend_of
from kvspill.storage.directio import Access, probe
from kvspill.storage.findings import Finding
from kvspill.storage.rundir import RunDir
from kvspill.texts import listed, size_text
from kvspill.waiting import within

SPACE_BYTES_MIN = 2 * GIB
"""Below this, not even two of the largest llama3.1-8b entries fit."""
SPACE_BYTES_GOOD = 32 * GIB
READ_AHEAD_KIB_MAX = 512
FULL_SHARE_MAX = 0.9
_SHARED = {
    "virtual disk": "its host may limit its speed, share it, or cache in memory",
    "remote disk": "its host may limit its speed or share it, and a network lies between",
    "network": "its server may be shared, and a network lies between",
}
"""Why the figures of a device may not be its own."""
OTHER_DIR = "name another directory with --cache-dir"


def storage_checks(place: Place, kernel: Kernel) -> list[Check]:
    """All checks of one directory."""
    group = f"storage at {place.path}"
    usable = _directory(group, place, kernel)
    if usable.remedy:
        return [usable]
    access, direct = _direct(group, place)
    return [
        usable,
        _file_system(group, place),
        direct,
        *_alignment(group, access),
        _device(group, place),
        *(_loop(group, loop) for loop in place.loops),
        *_queue(group, place, kernel, direct_io=access is not None and access.direct),
        _space(group, place),
        *_throttle(group, place, kernel),
        *(network_checks(group, place.network) if place.network is not None else ()),
    ]


def address_checks(address: str, found: Found, options: Mapping[str, Any]) -> list[Check]:
    """Which backend answers for an address, whether it is ready, and what its store says; one of an unknown
    scheme is refused."""
    plugin = backend_of(found, address)
    group, whose = f"storage at {address}", f"backend {plugin.name}, from {plugin.origin}"
    reason = plugin.why_not()
    if reason is not None:
        return [_told(group, ADDRESS, f"{whose}: not ready: {reason}", "see its documentation")]
    if plugin.ask is None:
        asked = "" if Need.DIRECTORY in plugin.needs else "; the store itself was not asked"
        return [ok(group, ADDRESS, f"{whose}: ready{asked}")]
    ready = ok(group, ADDRESS, f"{whose}: ready")
    try:
        with plugin.blamed(f" at {address}"):
            findings: Sequence[Finding] = plugin.ask(address, options)
    except KvspillError as error:
        text = str(error).removeprefix(f"--cache-dir {address}: ")
        return [ready, _told(group, "answer", text, "see the documentation of the store")]
    return [
        ready,
        *(
            warning(group, one.name, one.text, one.remedy) if one.remedy else ok(group, one.name, one.text)
            for one in findings
        ),
    ]


def _told(group: str, name: str, text: str, otherwise: str) -> Check:
    """A problem whose remedy stands behind its cause."""
    cause, _, remedy = text.rpartition("; ")
    return problem(group, name, cause or remedy, remedy if cause else otherwise)


def _directory(group: str, place: Place, kernel: Kernel) -> Check:
    name = DIRECTORY
    if place.path.exists() and not place.path.is_dir():
        return problem(group, name, "is a file, not a directory", OTHER_DIR)
    if not place.path.is_dir():
        above = next(path for path in place.path.parents if path.exists())
        if not above.is_dir():
            return problem(group, name, f"does not exist, and {above} is a file", OTHER_DIR)
        if cannot_be_made(place.path, kernel) is not None:
            return problem(group, name, f"does not exist and cannot be made in {above}", OTHER_DIR)
        make = f"make it with: mkdir -p {shlex.quote(str(place.path))}"
        return problem(group, name, "does not exist", f"mount the drive that belongs there, or {make}")
    if place.kind == KERNEL_VIEW:
        text = f"lies on {place.filesystem}, a view into the kernel that stores no files"
        return problem(group, name, text, OTHER_DIR)
    if _read_only(place.path):
        text = f"lies on a file system that is mounted read-only ({place.filesystem or 'unknown kind'})"
        return problem(group, name, text, f"mount it for writing (mount -o remount,rw), or {OTHER_DIR}")
    if not place.writable:
        return problem(group, name, "is not writable", f"change its permissions or {OTHER_DIR}")
    return ok(group, name, "exists and is writable")


def _read_only(path: Path) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _file_system(group: str, place: Place) -> Check:
    name = "file system"
    if place.kind == MEMORY:
        below = [loop for loop in place.loops if loop.filesystem in MEMORY_FILE_SYSTEMS]
        where = "".join(
            f" on {loop.name}, whose file {loop.file} lies in {loop.filesystem}" for loop in below
        )
        return problem(group, name, f"{place.filesystem}{where}: memory, not a device", OTHER_DIR)
    if place.kind == "network":
        served = f" ({place.network.describe()})" if place.network is not None else ""
        text = f"{place.filesystem}{served}: a network file system; results include the network and its cache"
        return warning(group, name, text, "compare only runs from the same client, with no other load")
    if place.kind == "layered":
        text = f"{place.filesystem}: a layer above another file system, which adds its own cost"
        return warning(group, name, text, f"{OTHER_DIR} that is mounted directly")
    if place.filesystem in ("btrfs", "zfs", "bcachefs"):
        text = f"{place.filesystem}: copy-on-write, checksums and compression change what reaches the device"
        return warning(group, name, text, "use ext4 or xfs to measure the drive alone")
    return ok(group, name, place.filesystem or "unknown")


def _direct(group: str, place: Place) -> tuple[Access | None, Check]:
    """Try it: open, write and read one block with O_DIRECT in a private directory."""
    name = "O_DIRECT"
    try:
        # On a thread of its own no signal cuts it off between the making of the directory and its removal.
        access = within(WRITING_SECONDS_MAX, lambda: _tried(place.path))
    except (KvspillError, OSError) as error:
        return None, problem(group, name, f"a trial write failed: {error}", OTHER_DIR)
    if access.direct:
        return access, ok(group, name, "works (a block was written and read back)")
    text = f"{access.description}: the page cache can serve reads"
    return access, warning(group, name, text, f"{OTHER_DIR} on ext4 or xfs")


def _tried(folder: Path) -> Access:
    run = RunDir(folder)
    try:
        return probe(run, "auto")
    finally:
        left = run.remove()
        if left:
            raise KvspillError(f"not removed: {', '.join(str(run.path / name) for name in left)}")


def _alignment(group: str, access: Access | None) -> list[Check]:
    if access is None or not access.direct:
        return []
    if access.alignment > 4096:
        text = f"{access.alignment} bytes: small entries are padded more than usual"
        return [warning(group, "alignment", text, "compare bandwidths by bytes as stored")]
    return [ok(group, "alignment", f"{access.alignment} bytes")]


def _device(group: str, place: Place) -> Check:
    name, text = "device", place.describe()
    if place.kind in ("nvme", "ssd"):
        return ok(group, name, text)
    shared = "run several trials (--trials 5) and compare medians: their spread is what sharing costs"
    remedies = {
        "virtual disk": shared,
        "remote disk": f"{shared}, and its quota of IOPS and bandwidth may be spent",
        "network": shared,
        "hard disk": "expect a few hundred MB/s at most; use a solid-state drive",
        "layered": "name a directory on the disk itself",
        "memory": "name a directory on a disk",
    }
    if place.kind in _SHARED:
        text += f": {_SHARED[place.kind]}"
    return warning(group, name, text, remedies.get(place.kind, "name a directory on a local disk"))


def _loop(group: str, loop: Loop) -> Check:
    """A file in place of a disk: a second file system lies between, and perhaps a page cache."""
    under = loop.filesystem or "a file system that cannot be seen from here"
    cache = {
        True: "past its page cache",
        False: "through its page cache, which can serve reads that were asked of the device",
        None: "perhaps through its page cache",
    }[loop.direct_io]
    text = f"{loop.name} stands for the file {loop.file} on {under} and moves its bytes {cache}"
    remedy = "name a directory on the disk itself"
    if not loop.direct_io:
        remedy += f", or: sudo losetup --direct-io=on /dev/{loop.name}"
    return warning(group, f"loop device {loop.name}", text, remedy)


def _queue(group: str, place: Place, kernel: Kernel, direct_io: bool) -> list[Check]:
    """Scheduler and read-ahead of each disk."""
    checks = []
    for disk in place.disks:
        checks.append(_scheduler(group, disk, place))
        kib = read_ahead_kib(disk, kernel)
        if kib is not None:
            checks.append(_read_ahead(group, disk, kib, direct_io))
    return checks


def _scheduler(group: str, disk: str, place: Place) -> Check:
    name, chosen = f"scheduler of {disk}", place.scheduler or "none visible"
    slow = chosen == "bfq" or (place.kind == "nvme" and chosen not in ("none", "none visible"))
    if slow:
        remedy = f"echo none | sudo tee /sys/block/{disk}/queue/scheduler"
        return warning(group, name, f"{chosen}: costs CPU and orders what a fast drive should see", remedy)
    return ok(group, name, chosen)


def _read_ahead(group: str, disk: str, kib: int, direct_io: bool) -> Check:
    name = f"read-ahead of {disk}"
    if direct_io:
        return ok(group, name, f"{kib} KiB (direct I/O does not use it)")
    if kib > READ_AHEAD_KIB_MAX:
        remedy = f"echo 128 | sudo tee /sys/block/{disk}/queue/read_ahead_kb"
        return warning(group, name, f"{kib} KiB: buffered reads fetch more than is asked for", remedy)
    return ok(group, name, f"{kib} KiB")


def _space(group: str, place: Place) -> Check:
    name, free = "free space", size_text(place.free_bytes)
    if place.free_bytes < SPACE_BYTES_MIN:
        return problem(group, name, f"{free}: too little for a run", f"free some, or {OTHER_DIR}")
    figures = os.statvfs(place.path)
    full = 1 - figures.f_bavail / max(1, figures.f_blocks)
    if place.free_bytes < SPACE_BYTES_GOOD:
        remedy = "keep --storage-capacity-gb and the number of users small"
        return warning(group, name, f"{free}: entries will be evicted early", remedy)
    if full > FULL_SHARE_MAX:
        remedy = "free some space: file systems and drives slow down when nearly full"
        return warning(group, name, f"{free}, {full:.0%} full", remedy)
    filled = size_text(place.free_bytes * FREE_SPACE_SHARE)
    return ok(group, name, f"{free}, of which a run fills at most {filled}")


def _throttle(group: str, place: Place, kernel: Kernel) -> list[Check]:
    """Limits that a control group sets on the I/O of this process."""
    found = io_limits(place.devices, kernel)
    if not found:
        return [ok(group, "I/O limits", "no control group limits this process")]
    text = f"a control group limits the I/O: {listed([limit.describe() for limit in found])}"
    return [warning(group, "I/O limits", text, "lift the limit, or state it with the result")]
