"""What the control groups around a process allow it of devices and processors, in either version."""

from pathlib import Path

import pytest

from kvspill.machine.cgroups import cpu_limit, io_limits
from kvspill.machine.environment import environment
from kvspill.run.runner import limited
from unit.machine.kernel_tree import Tree


def tree(root: Path, groups: str) -> Tree:
    """A machine with the disk nvme0n1 (259:0) and the loop device loop7 (7:7)."""
    made = Tree(root)
    made.proc("self/cgroup", groups)
    made.sys("block/nvme0n1/dev", "259:0\n")
    made.sys("block/loop7/dev", "7:7\n")
    return made


def said(made: Tree, *devices: str) -> list[str]:
    return [limit.describe() for limit in io_limits(devices, made.kernel)]


def test_the_first_version_limits_each_direction_in_a_file_of_its_own(tmp_path: Path) -> None:
    made = tree(tmp_path, "7:blkio:/job\n0::/\n")
    folder = "fs/cgroup/blkio/job/blkio.throttle"
    made.sys(f"{folder}.read_bps_device", "7:7 209715200\n9:9 1\n")
    made.sys(f"{folder}.write_bps_device", "7:7 104857600\n")
    made.sys(f"{folder}.read_iops_device", "7:7 5000\n")
    assert said(made, "nvme0n1", "loop7") == [
        "200 MiB/s of reads on loop7",
        "5,000 reads/s on loop7",
        "100 MiB/s of writes on loop7",
    ]
    assert said(made, "nvme0n1") == []


def test_in_the_second_version_the_lowest_limit_of_all_groups_above_holds(tmp_path: Path) -> None:
    made = tree(tmp_path, "0::/outer/inner\n")
    made.sys("fs/cgroup/outer/inner/io.max", "259:0 rbps=max wbps=52428800 riops=max wiops=max\n")
    made.sys("fs/cgroup/outer/io.max", "259:0 rbps=1073741824 wbps=104857600 riops=max wiops=900\n")
    assert said(made, "nvme0n1", "absent") == [
        "50 MiB/s of writes on nvme0n1",
        "1.00 GiB/s of reads on nvme0n1",
        "900 writes/s on nvme0n1",
    ]


@pytest.mark.parametrize(
    ("groups", "files", "processors"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n"}, None),
        (
            "3:cpu,cpuacct:/a/b\n0::/\n",
            {
                "cpu/a/b/cpu.cfs_quota_us": "-1\n",
                "cpu/a/b/cpu.cfs_period_us": "100000\n",
                "cpu/a/cpu.cfs_quota_us": "50000\n",
                "cpu/a/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
    ],
)
def test_the_least_processors_of_all_groups_above_hold(
    tmp_path: Path, groups: str, files: dict[str, str], processors: float | None
) -> None:
    made = tree(tmp_path, groups)
    for name, text in files.items():
        made.sys(f"fs/cgroup/{name}", text)
    assert cpu_limit(made.kernel) == processors


def test_a_run_is_warned_of_the_limits_and_its_result_keeps_them(tmp_path: Path) -> None:
    made, folder = tree(tmp_path / "kernel", "0::/\n"), tmp_path / "drive"
    folder.mkdir()
    made.mount(folder)
    assert list(limited([folder], made.kernel)) == []
    number = (made.kernel.sys / "block" / "nvme0n1" / "dev").read_text().strip()
    made.sys("fs/cgroup/io.max", f"{number} rbps=209715200 wbps=max riops=max wiops=max\n")
    made.sys("fs/cgroup/cpu.max", "10000 100000\n")
    storage, processors = limited([folder, folder], made.kernel)
    assert storage.code == "io_limited"
    assert "may move: 200 MiB/s of reads on nvme0n1. " in storage.message
    assert processors.code == "cpu_limited"
    assert "the time of 0.1 of " in processors.message
    facts = environment([folder], made.kernel)
    assert facts["directories"][0]["io_limits"] == ["200 MiB/s of reads on nvme0n1"]
    assert facts["cpu_limit"] == 0.1
