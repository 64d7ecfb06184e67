"""Ranks and runs that share a file system divide its free space (R5, R6)."""

import os
from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.machine.launcher import Launched
from kvspill.machine.memory import Available
from kvspill.machine.mounts import Mount
from kvspill.records import GIB
from kvspill.run import preflight, sharing
from kvspill.run.preflight import cache_dirs, check_machine, claimed_bytes, free_bytes, offered_write_bytes
from kvspill.run.sharing import Sharing, find_sharing, places_of
from kvspill.storage.neighbours import Neighbour

PLENTY = Available(64 * GIB, "this machine")
TWO = Launched(rank=1, size=2, local_size=2, job="ours")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on a disk with exactly 5.6 GiB free."""

    class Figures:
        f_bavail, f_frsize = int(5.6 * GIB), 1

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preflight, "file_system", lambda _path: "ext4")
    monkeypatch.setattr(sharing, "file_system", lambda _path: "ext4")
    monkeypatch.setattr(os, "statvfs", lambda _path: Figures)
    monkeypatch.setattr(sharing, "neighbours", lambda _dirs: [])
    return tmp_path


def other(disk: Path, claimed: float, held: float = 0.0, job: str = "") -> Neighbour:
    device = disk.stat().st_dev
    return Neighbour(4711, job, {device: int(claimed * GIB)}, {device: int(held * GIB)})


def planned(disk: Path, config: Config, found: Sharing) -> float:
    return check_machine(config, disk, PLENTY, found).storage_bytes / GIB


def test_two_ranks_on_one_disk_get_half_of_it_each(disk: Path) -> None:
    config = Config(cache_dir=[str(disk)])
    assert planned(disk, config, find_sharing(config, [disk], TWO)) == pytest.approx(5.6 / 2 * 0.8)
    assert planned(disk, config, find_sharing(config, [disk])) == pytest.approx(5.6 * 0.8)


def test_what_a_rank_has_written_before_another_looks_is_divided_too(disk: Path) -> None:
    found = Sharing({disk.stat().st_dev: 2}, "ours", [other(disk, 2.2, held=1.0, job="ours")])
    assert free_bytes((disk,), sharing=found) / GIB == pytest.approx((5.6 + 1.0) / 2)


def test_a_run_of_its_own_keeps_what_it_claims(disk: Path) -> None:
    found = Sharing({}, "", [other(disk, 4.4, held=1.0)])
    assert free_bytes((disk,), sharing=found) / GIB == pytest.approx(5.6 - 3.4)
    with pytest.raises(UsageError) as caught:
        planned(disk, Config(cache_dir=[str(disk)], storage_capacity_gb=3), found)
    assert str(caught.value) == (
        f"--storage-capacity-gb 3: only 2.20 GiB are free in {disk} (without 3.40 GiB that a run with "
        "process number 4711 may still take); give at most --storage-capacity-gb 2.2 or another --cache-dir"
    )


def test_a_capacity_that_only_one_of_two_ranks_could_have_is_refused(disk: Path) -> None:
    config = Config(cache_dir=[str(disk)], storage_capacity_gb=4)
    with pytest.raises(UsageError) as caught:
        planned(disk, config, find_sharing(config, [disk], TWO))
    assert str(caught.value) == (
        f"--storage-capacity-gb 4: only 2.80 GiB are free in {disk} (divided among 2 ranks); give at most "
        "--storage-capacity-gb 2.7 or another --cache-dir"
    )


def test_a_disk_that_is_too_small_for_two_is_refused_with_the_reason(disk: Path) -> None:
    config = Config(cache_dir=[str(disk)], workload_preset="2026-02")
    with pytest.raises(UsageError) as caught:
        planned(disk, config, find_sharing(config, [disk], TWO))
    assert f"--cache-dir {disk} (divided among 2 ranks): 2.80 GiB are free" in str(caught.value)


def test_ranks_with_disks_of_their_own_divide_nothing(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, device = disk / "nvme1", disk.stat().st_dev
    mine.mkdir()
    numbers = {"nvme0": device + 1, "nvme1": device}
    monkeypatch.setattr(sharing, "_device_of", lambda path: numbers[path.name])
    assert find_sharing(Config(cache_dir=[f"{disk}/nvme{{rank}}"]), [mine], TWO).ranks == {device: 1}
    assert find_sharing(Config(cache_dir=[f"{disk}/nvme1"]), [mine], TWO).ranks == {device: 2}


def test_ranks_of_other_machines_share_a_file_system_of_the_network_alone(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, device = Config(cache_dir=[str(disk)]), disk.stat().st_dev
    eight = Launched(rank=1, size=8, local_size=2, job="ours")
    assert find_sharing(config, [disk], eight).ranks == {device: 2}
    monkeypatch.setattr(sharing, "file_system", lambda _path: "nfs4")
    assert find_sharing(config, [disk], eight).ranks == {device: 8}


def test_ranks_name_the_place_of_their_entries_alike(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [disk / "a", disk / "b"]
    for folder in folders:
        folder.mkdir()
    found = [places_of(Config(), [folder]) for folder in (*folders, disk)]
    assert len(set(found)) == len(found[0]) == 1
    nfs = Mount("0:52", str(folders[0]), "nfs4", "filer:/export")
    monkeypatch.setattr(sharing, "find_mount", lambda path, _kernel: nfs if path == folders[0] else None)
    assert places_of(Config(), [folders[0]]) == ("nfs4 filer:/export",)
    assert places_of(Config(), folders) == tuple(sorted(("nfs4 filer:/export", *found[0])))
    stored = Config(cache_dir=["redis://:geheim@h{rank}:7/0"], storage_backend="redis")
    assert places_of(stored, ()) == ("h0:7",)
    assert places_of(Config(storage_backend="null"), ()) == ()


def test_a_rank_finds_its_own_directory(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (disk / "rank_1").mkdir()
    config = Config(cache_dir=[f"{disk}/rank_{{rank}}"])
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert cache_dirs(config, disk) == (disk / "rank_1",)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    with pytest.raises(UsageError) as caught:
        cache_dirs(config, disk)
    assert str(caught.value) == (
        f"--cache-dir {disk}/rank_{{rank}}: does not exist; mount the drive that belongs there, or make it "
        f"with: mkdir -p {disk}/rank_0"
    )


def test_a_run_claims_no_more_than_its_users_can_write() -> None:
    short = Config(model="tiny-1b", num_users=2, duration=10.0)
    long = Config(model="tiny-1b", num_users=200, duration=3600.0)
    assert offered_write_bytes(short) < claimed_bytes(short, 100 * GIB) < 3 * GIB
    assert claimed_bytes(long, 100 * GIB) == 100 * GIB
    for changes in (
        {"precondition": True},
        {"enable_rag": True},
        {"layout": "slots"},
        {"trace": "azure:sample"},
    ):
        assert claimed_bytes(short.changed(**changes), 100 * GIB) == 100 * GIB
