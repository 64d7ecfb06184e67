"""Runs of several ranks under a real MPI launcher."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from real.rig import Finished, Run, start

MPIRUN = shutil.which("mpirun") or ""
NEEDS_MPI = [
    pytest.mark.real,
    pytest.mark.skipif(not MPIRUN, reason="mpirun is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
]
KVSPILL = (sys.executable, "-m", "kvspill.cli.main")
os.environ |= {
    # Open MPI refuses to run as root, or more ranks than cores, unless told to; it binds ranks to cores.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}


def ranks(
    number: int, where: Path, *argv: str, cache: Path | None = None, program: Sequence[str] = KVSPILL
) -> Run:
    """Start a small load on so many ranks."""
    cache = where / "cache" if cache is None else cache
    if "{" not in str(cache):
        cache.mkdir(parents=True, exist_ok=True)
    return start(where, cache, *argv, program=program, under=(MPIRUN, "-n", str(number)))


def done(run: Run) -> Finished:
    finished = run.finish(60.0)
    assert finished.code == 0, finished.err
    return finished


def said(finished: Finished) -> list[str]:
    """The errors that were printed."""
    return [line for line in finished.err.splitlines() if line.startswith("kvspill: error: ")]


def process_of(run: Run, rank: int) -> int | None:
    """The process number of a rank, once it is there."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _parent(folder) == run.process.pid:
            words = (folder / "environ").read_bytes().split(b"\0")
            if f"OMPI_COMM_WORLD_RANK={rank}".encode() in words:
                return int(folder.name)
    return None


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None
