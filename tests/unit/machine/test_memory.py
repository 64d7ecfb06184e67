"""Claims about the memory that a run may take: the machine's, and that of the control groups around it."""

from pathlib import Path

from kvspill.machine.kernel import Kernel
from kvspill.machine.memory import Available, Swap, available_memory, swap
from kvspill.records import MIB


def cgroup_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_memory_is_what_the_machine_has_without_groups(tmp_path: Path) -> None:
    proc = cgroup_tree(tmp_path / "proc", {"meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"})
    assert available_memory(Kernel(proc, tmp_path / "none")) == Available(2 * MIB, "this machine")


def test_a_v2_group_above_the_process_limits_the_memory(tmp_path: Path) -> None:
    proc = cgroup_tree(
        tmp_path / "proc", {"meminfo": "MemAvailable: 1048576 kB\n", "self/cgroup": "0::/outer/inner\n"}
    )
    groups = cgroup_tree(
        tmp_path / "sys/fs/cgroup",
        {
            "outer/memory.max": "1000\n",
            "outer/memory.current": "700\n",
            "outer/memory.stat": "anon 5\ninactive_file 300\n",
            "outer/inner/memory.max": "max\n",
            "outer/inner/memory.current": "10\n",
        },
    )
    assert available_memory(Kernel(proc, tmp_path / "sys")) == Available(
        600, f"the control group {groups}/outer"
    )


def test_a_v1_group_limits_the_memory(tmp_path: Path) -> None:
    proc = cgroup_tree(
        tmp_path / "proc",
        {"meminfo": "MemAvailable: 1048576 kB\n", "self/cgroup": "4:memory:/job\n0::/\n"},
    )
    groups = cgroup_tree(
        tmp_path / "sys/fs/cgroup",
        {
            "memory/job/memory.limit_in_bytes": "5000\n",
            "memory/job/memory.usage_in_bytes": "6000\n",
            "memory/job/memory.stat": "total_inactive_file 2000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "memory/memory.usage_in_bytes": "1\n",
        },
    )
    assert available_memory(Kernel(proc, tmp_path / "sys")) == Available(
        1000, f"the control group {groups}/memory/job"
    )


def test_an_unknown_machine_sets_no_limit(tmp_path: Path) -> None:
    assert available_memory(Kernel(tmp_path, tmp_path)) is None


def test_swap_areas_are_added_up_and_none_is_none(tmp_path: Path) -> None:
    head = "Filename Type Size Used Priority\n"
    cgroup_tree(tmp_path, {"swaps": f"{head}/dev/sda2 partition 1024 0 -2\n/swap file 2048 512 -3\n"})
    assert swap(Kernel(tmp_path, tmp_path)) == Swap(3 * MIB, 512 * 1024)
    cgroup_tree(tmp_path, {"swaps": head})
    assert swap(Kernel(tmp_path, tmp_path)) is None
