"""How the bytes of files get to a GPU's memory and back, in words, and the file that it is tried with."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvspill.storage.base import COMPATIBILITY, DIRECT, DirectError, Note
from kvspill.storage.buffers import map_memory
from kvspill.storage.directio import Access
from kvspill.storage.rundir import RunDir
from kvspill.storage.stamps import BLOCK_BYTES

THROUGH_HOST = "through host memory"


@dataclass(frozen=True, slots=True)
class Reach:
    """What --gpu-direct asked for, what there is, and why it is not more."""

    wanted: str
    mode: str
    """DIRECT, COMPATIBILITY or THROUGH_HOST."""
    reason: str = ""

    @property
    def sentence(self) -> str:
        """For the tier's description."""
        if self.mode == DIRECT:
            return "to the GPU by GPUDirect Storage"
        if self.mode == COMPATIBILITY:
            return "to the GPU by cuFile in its compatibility mode, which is no GPUDirect Storage"
        why = f", without GPUDirect Storage: {self.reason}" if self.reason else ""
        return f"to the GPU through registered host memory{why}"

    def notes(self) -> list[Note]:
        if self.mode == COMPATIBILITY:
            message = (
                "cuFile ran in its compatibility mode: bytes went through host memory, by its own copies."
            )
            return [Note("gpu_direct_compatibility", message, "Load nvidia-fs, or use --gpu-direct off.")]
        if self.mode == THROUGH_HOST and self.wanted == "on":
            message = f"Bytes between storage and GPU go through host memory: {self.reason}."
            return [Note("gpu_direct", message, "See gdscheck -p, or use --gpu-direct auto.")]
        return []


@contextmanager
def trial_file(run: RunDir, access: Access) -> Iterator[int]:
    """A descriptor of a file of one block, which is gone afterwards."""
    if not access.direct:
        raise DirectError("O_DIRECT is not in use")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open("probe", flags, 0o600, dir_fd=run.fd)
    try:
        os.pwrite(fd, map_memory(BLOCK_BYTES).data, 0)
        yield fd
    finally:
        os.close(fd)
        os.unlink("probe", dir_fd=run.fd)
