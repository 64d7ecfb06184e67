"""What the launcher of several processes (mpirun, srun) says of this one: its rank and who else there is."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kvspill.errors import UsageError
from kvspill.machine.kernel import Kernel, read_text


@dataclass(frozen=True, slots=True)
class Launched:
    """A process among those of one launch."""

    rank: int
    size: int
    local_size: int | None
    """Processes of the launch on this machine; None where the launcher does not say."""
    job: str
    """The same text in every process of the launch, and in no other."""


class _Names(NamedTuple):
    """The variables of one launcher."""

    rank: str
    size: str
    local_size: str
    job: tuple[str, ...]


_OPEN_MPI = _Names(
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", ("PMIX_NAMESPACE",)
)
_HYDRA = _Names("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_PORT",))
_HYDRA_PROXY = "hydra_pmi_proxy"
"""Names no job, but all ranks of a launch on a machine are below one such process."""
# A batch script has a rank too, but only srun starts a step of several tasks.
_SLURM = _Names("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", ("SLURM_JOB_ID", "SLURM_STEP_ID"))
_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def launched(environ: Mapping[str, str] | None = None) -> Launched | None:
    """How this process was launched, or None where it was started by hand."""
    environ = os.environ if environ is None else environ
    for names in (_OPEN_MPI, _HYDRA, _SLURM):
        if environ.get(names.rank) and environ.get(names.size):
            return _launched(environ, names)
    return None


def refuse_several(what: str, remedy: str = "start it without mpirun or srun") -> None:
    """Raise where a launcher started several processes for what one does; one of them says so."""
    launch = launched()
    if launch is None or launch.size == 1:
        return
    error = UsageError(f"{launch.size} ranks: {what} is one process; {remedy}")
    if launch.rank == 0:
        raise error
    raise SystemExit(error.exit_code)


def _launched(environ: Mapping[str, str], names: _Names) -> Launched:
    rank, size = _number(environ, names.rank), _number(environ, names.size)
    if rank >= size:
        raise UsageError(
            f"{names.rank}={rank}: there are only {names.size}={size} processes; unset them, or start with "
            "the launcher"
        )
    if names is _SLURM:
        local_size = _tasks_here(environ)
    else:
        local_size = _number(environ, names.local_size) if environ.get(names.local_size) else None
    words = [environ[name] for name in names.job if environ.get(name)]
    if not words:
        words = _ancestor(_HYDRA_PROXY, Kernel())
    return Launched(rank, size, local_size, ".".join([names.rank, str(size), *words]))


def _ancestor(name: str, kernel: Kernel) -> list[str]:
    """The number of the nearest process above this one that has the name; none where there is no such."""
    pid = os.getppid()
    while pid > 1:
        text = read_text(kernel.proc / str(pid) / "stat") or ""
        # pid (name) state ppid …; the name may hold blanks and brackets.
        if text[text.find("(") + 1 : text.rfind(")")] == name:
            return [str(pid)]
        after = text[text.rfind(")") + 1 :].split()
        pid = int(after[1]) if len(after) > 1 else 0
    return []


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        value = int(environ[name])
    except ValueError:
        value = -1
    if value < 0:
        raise UsageError(
            f"{name}={environ[name][:40]!r}: not a number from 0 on; unset it, or start with mpirun"
        )
    return value


def _tasks_here(environ: Mapping[str, str]) -> int | None:
    """The number of this node in a list such as 4(x2),3."""
    node, tasks = environ.get("SLURM_NODEID", ""), environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts: list[int] = []
    for word in tasks.split(","):
        match = _REPEATED.fullmatch(word.strip())
        if match is None:
            return None
        counts += [int(match[1])] * int(match[2] or 1)
    return counts[int(node)] if node.isdecimal() and int(node) < len(counts) else None


def unknown_placeholder(text: str) -> str | None:
    """The first word in braces of a path that has no meaning in it."""
    found = (word for word in re.findall(r"\{\w*\}", text) if word not in ("{rank}", "{host}"))
    return next(found, None)


def placed(text: str, rank: int, host: str | None = None) -> str:
    """A path with its {rank} and {host} filled in (R5)."""
    return text.replace("{rank}", str(rank)).replace("{host}", host or socket.gethostname())
