"""What a file system can do for direct I/O, and the few system calls that Python does not offer."""

import ctypes
import errno
import mmap
import os
from dataclasses import dataclass

import numpy as np

from kvspill.errors import UsageError
from kvspill.machine.mounts import MEMORY_FILE_SYSTEMS, file_system
from kvspill.storage.buffers import map_memory
from kvspill.storage.rundir import LIMITS_OF_THE_PROCESS, RunDir

_STATX_DIOALIGN = 0x2000
_AT_EMPTY_PATH = 0x1000
_STATX_BYTES = 256
_DIO_MEM_ALIGN_AT = 152
_DIO_OFFSET_ALIGN_AT = 156
_ALIGNMENT_MIN = 4096
"""ext4 and XFS write a part of a block with the inode locked, after all other pieces of the file are done."""
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Access:
    """How files under one root are opened."""

    filesystem: str
    direct: bool
    alignment: int
    drop_cache: bool
    """True where pages must be synced and dropped by hand so that reads come from the device (E7)."""
    preallocates: bool
    """False for memory: there, reserving room costs as much as writing and parallelises worse."""
    description: str
    keeps_pages: bool = False
    """True where what buffered I/O leaves in memory is left to the kernel."""


def probe(run: RunDir, wanted: str, keep_pages: bool = False) -> Access:
    """Find out by trying whether files in the run directory can be opened with O_DIRECT."""
    filesystem = file_system(run.path) or "unknown"
    if filesystem in MEMORY_FILE_SYSTEMS:
        if wanted == "on":
            raise UsageError(
                f"--direct on: {run.root} is {filesystem}, which is memory; name a directory on a device "
                f"or use --direct auto"
            )
        return Access(filesystem, False, _ALIGNMENT_MIN, False, False, f"{filesystem}: memory, not a device")
    if wanted == "off":
        return _buffered(filesystem, "--direct off", keep_pages)
    try:
        alignment = _try_direct(run)
    except OSError as error:
        if error.errno in LIMITS_OF_THE_PROCESS:
            raise
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise UsageError(
                f"cache directory {run.root}: {error.strerror}; name a writable directory with --cache-dir"
            ) from error
        if wanted == "on":
            raise UsageError(
                f"--direct on: {filesystem} at {run.root} refuses O_DIRECT; use --direct auto"
            ) from error
        return _buffered(filesystem, f"{filesystem} refuses O_DIRECT", keep_pages)
    return Access(
        filesystem, True, alignment, False, True, f"{filesystem}, O_DIRECT, {alignment}-byte alignment"
    )


def _buffered(filesystem: str, why: str, keep_pages: bool) -> Access:
    how = "through the page cache" if keep_pages else "with fdatasync and POSIX_FADV_DONTNEED"
    text = f"{filesystem}, buffered {how} ({why})"
    return Access(filesystem, False, _ALIGNMENT_MIN, not keep_pages, True, text, keep_pages)


def _try_direct(run: RunDir) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open("probe", flags, 0o600, dir_fd=run.fd)
    try:
        alignment = direct_alignment(fd)
        memory = map_memory(alignment)
        os.pwrite(fd, memory.data, 0)
        os.preadv(fd, [memory.data], 0)
    finally:
        os.close(fd)
        os.unlink("probe", dir_fd=run.fd)
    return alignment


def direct_alignment(fd: int) -> int:
    """The alignment that statx reports for direct I/O on this file (E4), at least a block of 4096 bytes.

    A disk may accept 512 bytes, but its file system then waits: see _ALIGNMENT_MIN.
    """
    if not hasattr(_libc, "statx"):
        return _ALIGNMENT_MIN
    answer = (ctypes.c_uint8 * _STATX_BYTES)()
    if _libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, answer) != 0:
        return _ALIGNMENT_MIN
    words = np.frombuffer(bytes(answer), dtype=np.uint32)
    if not int(words[0]) & _STATX_DIOALIGN or not words[_DIO_OFFSET_ALIGN_AT // 4]:
        return _ALIGNMENT_MIN
    reported = max(int(words[_DIO_MEM_ALIGN_AT // 4]), int(words[_DIO_OFFSET_ALIGN_AT // 4]))
    return max(_ALIGNMENT_MIN, reported)


def preallocate(fd: int, nbytes: int, offset: int = 0) -> bool:
    """Reserve room before writing; False where the file system cannot. glibc's posix_fallocate would
    then write the file itself, so it is not used."""
    return _fallocate(fd, 0, offset, nbytes)


def _fallocate(fd: int, mode: int, offset: int, nbytes: int) -> bool:
    if _libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(nbytes)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EOPNOTSUPP, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number))


def resident_pages(fd: int, offset: int, nbytes: int) -> int:
    """Pages of a part of the file that are in the page cache now."""
    if nbytes == 0:
        return 0
    before = offset % mmap.ALLOCATIONGRANULARITY
    offset, nbytes = offset - before, nbytes + before
    with mmap.mmap(fd, nbytes, prot=mmap.PROT_READ, offset=offset) as region:
        view = np.frombuffer(region, dtype=np.uint8)
        marks = np.zeros(-(-nbytes // mmap.PAGESIZE), dtype=np.uint8)
        address, length = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(nbytes)
        failed = _libc.mincore(address, length, ctypes.c_void_p(marks.ctypes.data))
        number = ctypes.get_errno()
        # The view must go before the region can be unmapped.
        del view
    if failed:
        raise OSError(number, os.strerror(number))
    return int((marks[before // mmap.PAGESIZE :] & 1).sum())


def punch_hole(fd: int, offset: int, nbytes: int) -> bool:
    """Give back the room of a part of a file; False where the file system has no holes."""
    return _fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, offset, nbytes)
