"""What launchers say of a process: rank, size and local size, by Open MPI, MPICH and Slurm (R6)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvspill.errors import UsageError
from kvspill.machine.launcher import Launched, launched, placed

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-1@1",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),3",
    "SLURM_NODEID": "2",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
}


def test_a_process_started_by_hand_was_not_launched() -> None:
    assert launched({}) is None


def test_open_mpi_mpich_and_slurm_are_understood() -> None:
    assert launched(OPEN_MPI) == Launched(3, 8, 4, "OMPI_COMM_WORLD_RANK.8.prterun-1@1")
    hydra = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    assert launched(hydra) == Launched(0, 2, 2, "PMI_RANK.2")
    assert launched(SLURM) == Launched(5, 7, 3, "SLURM_PROCID.7.77.0")


def test_a_batch_script_is_no_rank_of_its_job() -> None:
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "64", "SLURM_JOB_ID": "77"}) is None


def test_ranks_of_two_launches_are_told_apart() -> None:
    first, second = launched(OPEN_MPI), launched({**OPEN_MPI, "PMIX_NAMESPACE": "prterun-2@1"})
    assert first is not None
    assert second is not None
    assert first.job != second.job


@pytest.mark.parametrize("tasks", ["", "2(x", "two"])
def test_a_local_size_that_nobody_says_is_not_guessed(tasks: str) -> None:
    found = launched({**SLURM, "SLURM_STEP_TASKS_PER_NODE": tasks})
    assert found is not None
    assert found.local_size is None


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"OMPI_COMM_WORLD_RANK": "x"},
            "OMPI_COMM_WORLD_RANK='x': not a number from 0 on; unset it, or start with mpirun",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "8"},
            "OMPI_COMM_WORLD_RANK=8: there are only OMPI_COMM_WORLD_SIZE=8 processes; unset them, or start "
            "with the launcher",
        ),
    ],
)
def test_a_rank_that_cannot_be_is_refused(changes: dict[str, str], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        launched({**OPEN_MPI, **changes})
    assert str(caught.value) == line


def test_a_path_may_name_rank_and_host_as_r5_says() -> None:
    assert placed("/mnt/{host}/nvme{rank}/{other}", 3, "node7") == "/mnt/node7/nvme3/{other}"


def test_ranks_below_two_proxies_of_mpich_are_told_apart(tmp_path: Path) -> None:
    """The process above them tells launches apart where the environment names no job."""
    proxy = tmp_path / "hydra_pmi_proxy"
    proxy.write_text('#!/bin/sh\n"$@"\n"$@"\n')
    proxy.chmod(0o755)
    rank = [sys.executable, "-c", "from kvspill.machine.launcher import launched; print(launched().job)"]
    environ = {**os.environ, "PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    jobs = [
        subprocess.run([str(proxy), *rank], env=environ, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    first, second = (set(text.split()) for text in jobs)
    assert len(first) == len(second) == 1, "the ranks of a launch are of one job"
    assert first != second
