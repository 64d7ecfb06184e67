"""Claims about what is checked on the machine before a run writes anything."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.machine.memory import Available
from kvspill.records import GIB, MIB
from kvspill.run import preflight
from kvspill.run.preflight import (
    ALONE,
    cache_dirs,
    check_load,
    check_machine,
    claimed_bytes,
    free_bytes,
    offered_write_bytes,
)
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan
from kvspill.run.trial import run_trial
from kvspill.storage.rundir import MARKER, MARKER_TEXT

PLENTY = Available(64 * GIB, "this machine")


def refused(config: Config, here: Path, memory: Available = PLENTY) -> str:
    before = sorted(here.rglob("*"))
    with pytest.raises(UsageError) as caught:
        check_machine(config, here, memory)
    assert sorted(here.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on something that counts as a disk with 10 GiB free."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preflight, "file_system", lambda _path: "ext4")
    monkeypatch.setattr(preflight, "free_bytes", lambda *_given: 10 * GIB)
    # Other runs on the machine that runs the tests have no part in them.
    monkeypatch.setattr(preflight, "find_sharing", lambda *_given: ALONE)
    return tmp_path


def test_the_default_capacity_is_80_percent_of_the_free_space_as_l7_says(here: Path) -> None:
    found = check_machine(Config(), here, PLENTY)
    assert found.storage_bytes == 8 * GIB
    assert found.cache_dirs == (here,)


def test_the_run_says_what_it_may_hold_and_write_as_l7_says(here: Path) -> None:
    config = Config(max_requests=10, storage_capacity_gb=2, cpu_mem_gb=0.5)
    assert check_machine(config, here, PLENTY).statement == (
        f"This run holds at most 2.00 GiB in {here} and 512 MiB of memory, and writes at most about 10.0 GiB."
    )


def test_no_run_is_said_to_hold_more_than_it_writes_l7(here: Path) -> None:
    config = Config(max_requests=1, storage_capacity_gb=8, cpu_mem_gb=0.5)
    assert check_machine(config, here, PLENTY).statement == (
        f"This run holds at most about 1.00 GiB in {here} and 512 MiB of memory, and writes at most about "
        "1.00 GiB."
    )


def test_each_of_several_trials_writes_as_much_l7(here: Path) -> None:
    config = Config(max_requests=10, storage_capacity_gb=2, cpu_mem_gb=0.5, trials=3)
    said = check_machine(config, here, PLENTY).statement
    assert said.endswith("and writes at most about 10.0 GiB in each of 3 trials.")


def test_what_is_held_on_a_real_gpu_is_said_and_a_modelled_one_holds_nothing(here: Path) -> None:
    config = Config(gpu_mem_gb=2, gpu_tier="real", cpu_mem_gb=0, storage_tier="off")
    assert check_machine(config, here, PLENTY).statement == "This run holds at most 2.00 GiB of GPU memory."
    config = Config(gpu_mem_gb=2, gpu_tier="real", cpu_mem_gb=0.5, storage_capacity_gb=2)
    assert f"2.00 GiB in {here}, 512 MiB of memory and 2.00 GiB of GPU memory, and writes" in (
        check_machine(config, here, PLENTY).statement
    )
    config = Config(gpu_mem_gb=2, gpu_tier="modelled", cpu_mem_gb=0, storage_tier="off")
    assert check_machine(config, here, PLENTY).statement == "This run holds nothing on a device."


def test_a_budget_beyond_the_memory_is_refused_with_the_value_that_fits(here: Path) -> None:
    line = refused(Config(cpu_mem_gb=32), here, Available(8 * GIB, "this machine"))
    assert line == (
        "--cpu-mem-gb 32: this machine has 8.00 GiB available, of which the program needs 640 MiB; "
        "give at most --cpu-mem-gb 7.3"
    )
    check_machine(Config(cpu_mem_gb=7.3), here, Available(8 * GIB, "this machine"))


def test_buffers_beyond_the_memory_are_refused(here: Path) -> None:
    line = refused(Config(io_size=256 * MIB, cpu_mem_gb=0), here, Available(8 * GIB, "this machine"))
    assert line.startswith("--io-size 268435456 with --io-threads 32: this machine has 8.00 GiB available")


def test_a_capacity_beyond_the_free_space_is_refused_with_the_value_that_fits(here: Path) -> None:
    assert refused(Config(storage_capacity_gb=50), here) == (
        f"--storage-capacity-gb 50: only 10.00 GiB are free in {here}; "
        "give at most --storage-capacity-gb 10 or another --cache-dir"
    )


def test_a_capacity_beyond_a_full_disk_is_not_told_to_be_0_which_means_the_default(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "free_bytes", lambda *_given: MIB)
    assert refused(Config(storage_capacity_gb=1), here) == (
        f"--storage-capacity-gb 1: only 1 MiB are free in {here}; free some, or give another --cache-dir"
    )


def test_a_disk_too_small_for_one_entry_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "free_bytes", lambda *_given: GIB)
    line = refused(Config(cache_dir=["."]), here)
    assert line == (
        f"--cache-dir {here}: 1.00 GiB are free, of which a run takes 80 % at most, but the largest "
        "entry takes 1.00 GiB (8,192 tokens of llama3.1-8b); name a directory with more room with "
        "--cache-dir, or a smaller --model"
    )
    assert refused(Config(), here) == line.replace("--cache-dir", "current directory", 1)


def test_a_missing_directory_is_refused_with_the_command_that_makes_it(here: Path) -> None:
    assert refused(Config(cache_dir=[f"{here}/x"]), here) == (
        f"--cache-dir {here}/x: does not exist; mount the drive that belongs there, or make it with: "
        f"mkdir -p {here}/x"
    )
    assert refused(Config(cache_dir=[f"{here}/my disk"]), here).endswith(f"mkdir -p '{here}/my disk'")


@pytest.mark.parametrize("above", ["/proc", "/sys", "/etc"])
def test_a_directory_is_not_advised_where_none_can_be_made(here: Path, above: str) -> None:
    assert refused(Config(cache_dir=[f"{above}/x/y"]), here) == (
        f"--cache-dir {above}/x/y: does not exist and cannot be made in {above}; name another directory"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_is_not_advised_below_one_that_is_not_writable(here: Path) -> None:
    (here / "locked").mkdir(mode=0o555)
    assert "cannot be made in" in refused(Config(cache_dir=["locked/x"]), here)


def test_a_placeholder_that_does_not_exist_is_named(here: Path) -> None:
    assert refused(Config(cache_dir=["/nope/{rank}-{foo}"]), here) == (
        "--cache-dir /nope/{rank}-{foo}: unknown placeholder {foo}; there are {rank} and {host}"
    )
    (here / "{foo}").mkdir()
    assert cache_dirs(Config(cache_dir=["{foo}"]), here) == (here / "{foo}",)


def test_a_file_is_refused_as_cache_directory(here: Path) -> None:
    (here / "f").touch()
    assert (
        refused(Config(cache_dir=["f"]), here) == "--cache-dir f: is not a directory; name another directory"
    )


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/bin", "/proc", "/sys", "/dev", "/boot", "/bin"])
def test_a_system_directory_is_refused(here: Path, path: str) -> None:
    real = Path(path).resolve()
    if not real.exists():
        pytest.skip(f"no {path} here")
    assert refused(Config(cache_dir=[path]), here) == (
        f"--cache-dir {path}: is a system directory ({real}); name another directory"
    )


def test_a_link_into_a_system_directory_is_refused(here: Path) -> None:
    (here / "link").symlink_to("/etc")
    assert "is a system directory (/etc)" in refused(Config(cache_dir=["link"]), here)


def test_an_unwritable_directory_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "d").mkdir(mode=0o500)
    if os.geteuid() == 0:
        # Root may write anywhere, so the answer of the kernel has to be given for it.
        monkeypatch.setattr(os, "access", lambda _path, _mode: False)
        monkeypatch.setattr(preflight, "check_output", lambda _output: None)
    assert refused(Config(cache_dir=["d"]), here) == (
        "--cache-dir d: is not writable; name another directory or change its permissions"
    )


def test_what_a_killed_run_left_is_not_in_the_way_of_the_next(here: Path) -> None:
    left, unmarked = here / "kvspill-123-0123abcd", here / "kvspill-124-0123abcd"
    for directory in (left, unmarked):
        directory.mkdir()
    (left / MARKER).write_bytes(MARKER_TEXT)
    check_machine(Config(storage_capacity_gb=2), here, PLENTY)
    assert not left.exists()
    assert unmarked.exists(), "what has no marker is nobody's to remove unasked"


def test_one_directory_under_two_names_is_refused(here: Path) -> None:
    assert refused(Config(cache_dir=[".", str(here)]), here) == (
        f"--cache-dir {here}: is the same directory as another one; name each once"
    )


@pytest.mark.real
def test_one_directory_at_two_places_is_refused(here: Path) -> None:
    """Each counted as a device of its own."""
    for name in ("disk", "again"):
        (here / name).mkdir()
    mounted = subprocess.run(["mount", "--bind", "disk", "again"], cwd=here, check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount")
    try:
        assert refused(Config(cache_dir=["disk", "again"]), here) == (
            "--cache-dir again: is the same directory as another one; name each once"
        )
    finally:
        subprocess.run(["umount", "again"], cwd=here, check=True)


def test_buffers_of_threads_that_only_write_are_counted(here: Path) -> None:
    """They were not: a control group's limit killed a run that had been let through, without a word."""
    memory = Available(700 * MIB, "the control group g")
    check_machine(Config(cpu_mem_gb=0), here, memory)
    line = refused(Config(cpu_mem_gb=0, write_threads=256), here, memory)
    assert line.startswith(
        "--io-size 4194304 with --io-threads 32 and --write-threads 256: the control group g has 700 MiB "
        "available, but the program takes up to 384 MiB and the buffers 1.12 GiB; "
    )


def test_memory_is_no_default_place_but_may_be_named_as_l6_says(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "file_system", lambda _path: "tmpfs")
    assert "lies in memory (tmpfs)" in refused(Config(), here)
    assert check_machine(Config(cache_dir=["."]), here, PLENTY).cache_dirs == (here,)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (".", "--output .: is a directory; name a file in it"),
        ("f/x.json", "--output f/x.json: {here}/f is not a directory; name a file in a writable directory"),
    ],
)
def test_a_result_file_that_cannot_be_written_is_refused(here: Path, output: str, line: str) -> None:
    (here / "f").touch()
    assert refused(Config(output=output), here) == line.format(here=here)


def test_a_result_in_a_directory_that_is_yet_to_be_made_is_fine(here: Path) -> None:
    check_machine(Config(output="a/b/c.json"), here, PLENTY)
    assert list(here.iterdir()) == []


def test_an_unknown_device_profile_is_refused(here: Path) -> None:
    assert refused(Config(device_profile="floppy"), here).startswith("--device-profile floppy: neither")


@pytest.mark.parametrize("fields", [{"storage_backend": "null"}, {"storage_tier": "off", "cpu_mem_gb": 2}])
def test_a_run_without_files_needs_no_directory(here: Path, fields: dict[str, object]) -> None:
    found = check_machine(Config(**fields), here, PLENTY)
    assert found.cache_dirs == ()


def test_what_preconditioning_writes_is_said_beforehand_l7(here: Path) -> None:
    said = check_machine(Config(precondition=True, storage_capacity_gb=2), here, PLENTY).statement
    assert ", writes 2.00 GiB to 20.00 GiB before the load to precondition the device, and writes at" in said


def test_directories_on_one_file_system_share_its_space(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    both = free_bytes((tmp_path / "a", tmp_path / "b"))
    assert both == pytest.approx(free_bytes((tmp_path,)), rel=0.05)


def test_generation_bounds_what_is_written() -> None:
    free, paced = Config(generation_mode="none"), Config(generation_mode="realistic")
    assert offered_write_bytes(paced) < offered_write_bytes(free) / 5
    assert offered_write_bytes(Config(max_requests=3)) == 3 * paced.largest_entry_bytes


@pytest.mark.parametrize("model", ["tiny-1b", "gpt-oss-20b"])
def test_all_blocks_of_a_request_count_as_written(model: str) -> None:
    config = Config(model=model, io_model="prefix", max_requests=60, cpu_mem_gb=0, generation_mode="none")
    written = run_trial(make_plan(config, simulated=True), Progress(quiet=True)).number("total_write_bytes")
    assert written is not None
    assert 60 * config.largest_entry_bytes < written <= offered_write_bytes(config)
    assert written <= claimed_bytes(config, 1000 * GIB)


def test_a_search_may_write_what_its_most_users_ask_for(here: Path) -> None:
    asked: dict[str, Any] = {
        "generation_mode": "none",
        "duration": 60.0,
        "storage_capacity_gb": 2,
        "num_users": 4,
    }
    search = Config(**asked, enable_autoscaling=True, max_users=40)
    assert offered_write_bytes(search) == offered_write_bytes(Config(**{**asked, "num_users": 40}))
    assert "if 40 users asked all the time" in check_machine(search, here, PLENTY).statement


def test_more_users_than_memory_holds_are_refused_with_the_numbers(here: Path) -> None:
    line = refused(Config(num_users=1_000_000, cpu_mem_gb=0), here, Available(4 * GIB, "this machine"))
    assert line == (
        "--num-users 1000000: this machine has 4.00 GiB available, but so many users take up to 4.29 GiB, "
        "1,000,000 waiting requests 977 MiB and the program 384 MiB; give a smaller --num-users or "
        "--max-queue"
    )
    check_machine(Config(num_users=100_000, cpu_mem_gb=0, duration=3), here, PLENTY)
    with pytest.raises(UsageError, match=r"--num-users 1000000: this machine has 4\.00 GiB"):
        check_load(Config(num_users=1_000_000, arrival="closed"), Available(4 * GIB, "this machine"))


def test_the_memory_of_many_users_is_not_given_to_the_dram_tier(here: Path) -> None:
    line = refused(Config(num_users=200_000, cpu_mem_gb=7), here, Available(8 * GIB, "this machine"))
    assert line.startswith(
        "--cpu-mem-gb 7: this machine has 8.00 GiB available, of which the program needs 2.37 GiB"
    )


def test_a_rate_that_no_machine_plans_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--request-rate 1e\+12: too many to plan; give at most"):
        Config(request_rate=1e12)
    Config(request_rate=1e12, max_requests=100)
