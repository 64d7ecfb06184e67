"""Whether a run goes on where neither lock nor marker tells: by what processes have open."""

import contextlib
import os

from kvspill.machine.kernel import Kernel
from kvspill.machine.processes import has_locked_a_file, lock_holders, open_files


def process_of(name: str, run_fd: int, kernel: Kernel | None = None) -> int | None:
    """The other process on this machine that goes on with a run directory, open here as run_fd.

    It has the directory and its locked marker open all its life: also where the marker was deleted, and
    where the lock cannot be seen from here, as below an overlay. Who only looks at a directory, or removes
    one without a marker, has no file locked.
    """
    kernel = kernel or Kernel()
    here = os.fstat(run_fd)
    for pid in lock_holders(kernel):
        for link, path in open_files(pid, kernel):
            if os.path.basename(path) == name:
                with contextlib.suppress(OSError):
                    if _may_be_one(here, os.stat(link)) and has_locked_a_file(pid, kernel):
                        return pid
    return None


def _may_be_one(here: os.stat_result, there: os.stat_result) -> bool:
    """Whether two directories of one run's name may be the same.

    An overlay, FUSE or a network file system shows directories of other file systems as its own. All of
    them have the major number 0; file systems with another one lie on devices of their own, so that one of
    these is a copy, as on an image of the other.
    """
    if here.st_dev == there.st_dev:
        return here.st_ino == there.st_ino
    return 0 in (os.major(here.st_dev), os.major(there.st_dev))
