"""Other runs on a file system: seen by their locks, with what they claim, hold and move (R5)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvspill.machine.processes import lock_holders
from kvspill.records import MIB
from kvspill.storage.neighbours import OvertakenError, Traffic, check_claim, claim, neighbours
from kvspill.storage.rundir import RunDir, clean

pytestmark = pytest.mark.real

OTHER_RUN = """
import os, sys
from pathlib import Path
from kvspill.storage.neighbours import claim
from kvspill.storage.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
claim(run, int(sys.argv[2]))
run.make_subdir("ab")
fd = os.open(run.path / "ab" / ("ab" * 16 + "-1"), os.O_CREAT | os.O_WRONLY)
os.write(fd, bytes(1 << 20))
for line in sys.stdin:
    os.pwrite(fd, bytes(1 << 20), 0)
    os.fsync(fd)
    print(run.name, flush=True)
run.remove()
"""
LAUNCH = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "ours"}


@contextmanager
def other_run(root: Path, **environ: str) -> Iterator["subprocess.Popen[str]"]:
    """A process with a run directory under a root; each line that it is sent makes it write 1 MiB."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_RUN, str(root), str(4 * MIB)],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        write(process)
        yield process
    finally:
        process.communicate(timeout=20)


def only(process: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch) -> None:
    """See this process alone: other runs of the machine, such as those of other tests, come and go."""
    monkeypatch.setattr(
        "kvspill.storage.neighbours.lock_holders",
        lambda kernel: {process.pid: lock_holders(kernel).get(process.pid, set())},
    )


def write(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline()


def test_a_run_of_another_process_is_seen_with_its_claim_and_what_it_holds(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    with other_run(tmp_path, **LAUNCH) as process:
        (found,) = [one for one in neighbours() if one.pid == process.pid]
        assert found.claimed_bytes == {device: 4 * MIB}
        assert MIB <= found.held_bytes[device] < 2 * MIB
        assert 2 * MIB < found.missing_bytes(device) <= 3 * MIB
        assert found.job == "OMPI_COMM_WORLD_RANK.2.ours"
    assert not [one for one in neighbours([tmp_path]) if one.pid in (process.pid, None)]
    assert not list(tmp_path.iterdir())


def test_a_run_whose_process_is_not_seen_is_known_by_its_lock(tmp_path: Path) -> None:
    def unseen(_kernel: object) -> dict[int, set[int]]:
        return {}

    with other_run(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvspill.storage.neighbours.lock_holders", unseen)
        (found,) = neighbours([tmp_path])
        assert found.pid is None
        assert found.claimed_bytes == {tmp_path.stat().st_dev: 4 * MIB}


def test_our_own_runs_and_those_of_the_dead_are_no_neighbours(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    claim(run, 5 * MIB)
    assert not [one for one in neighbours([tmp_path]) if one.pid in (None, os.getpid())]
    run.remove()
    with other_run(tmp_path) as process:
        process.kill()
        process.wait()
        assert not [one for one in neighbours([tmp_path]) if one.pid in (None, process.pid)]
        assert len(clean(tmp_path)) == 1, "the claim is part of what a killed run leaves"
    assert not list(tmp_path.iterdir())


def test_a_claim_that_cannot_be_read_claims_nothing(tmp_path: Path) -> None:
    with other_run(tmp_path) as process:
        (path,) = tmp_path.glob("*/.kvspill-claim")
        path.write_bytes(b"\xff{")
        (found,) = [one for one in neighbours([tmp_path]) if one.pid == process.pid]
        assert found.missing_bytes(tmp_path.stat().st_dev) == 0


def test_what_a_neighbour_writes_while_we_look_is_counted_and_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with other_run(tmp_path) as process:
        only(process, monkeypatch)
        traffic = Traffic([tmp_path])
        traffic.look()
        before = traffic.moved()
        for _ in range(4):
            write(process)
        traffic.look()
    traffic.look()
    after = traffic.moved()
    assert before["written_bytes"] == 0
    assert after["runs"] >= 1
    if Path("/proc/self/io").exists():
        assert 4 * MIB <= after["written_bytes"] < 5 * MIB, "also after its end"


def test_a_run_elsewhere_is_no_neighbour_of_this_device(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is but one file system here")
    with other_run(tmp_path) as process:
        traffic = Traffic([shared])
        traffic.look()
        write(process)
        traffic.look()
        (found,) = [one for one in neighbours() if one.pid == process.pid]
    assert traffic.moved()["written_bytes"] == 0
    assert found.missing_bytes(shared.stat().st_dev) == 0


def test_the_later_of_two_claims_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        f_bavail, f_frsize = 6 * MIB, 1

    monkeypatch.setattr(os, "fstatvfs", lambda _fd: Small)
    early = RunDir(tmp_path)
    claim(early, 4 * MIB)
    os.utime(early.path / ".kvspill-claim", ns=(1, 1))
    with other_run(tmp_path) as process:
        only(process, monkeypatch)
        check_claim(early, 4 * MIB)
        late = RunDir(tmp_path)
        claim(late, 4 * MIB)
        with pytest.raises(
            OvertakenError, match=r"a run that started at the same time may take \S+ MiB and leaves"
        ):
            check_claim(late, 4 * MIB)
        check_claim(late, 2 * MIB)
        late.remove()
    early.remove()


def test_ranks_of_one_launch_do_not_overtake_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        f_bavail, f_frsize = 1, 1

    for name, value in LAUNCH.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "fstatvfs", lambda _fd: Full)
    with other_run(tmp_path, **LAUNCH) as process:
        only(process, monkeypatch)
        run = RunDir(tmp_path)
        claim(run, 4 * MIB)
        check_claim(run, 4 * MIB)
        run.remove()


LOOKER = """
import fcntl, os, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
seen = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECTORY)
print("looking", flush=True)
sys.stdin.readline()
"""


def test_who_only_looks_at_a_run_is_none(tmp_path: Path) -> None:
    """It may hold a lock of its own and have the run's directory open."""
    run = RunDir(tmp_path)
    words = [sys.executable, "-c", LOOKER, str(tmp_path / "lock"), str(run.path)]
    looker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert looker.stdout is not None
    assert looker.stdout.readline() == "looking\n"
    assert looker.pid not in [one.pid for one in neighbours()]
    looker.communicate("\n", timeout=20)
    run.remove()
