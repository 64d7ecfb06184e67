"""Probes: differences of kernel counters, and None wherever the machine doesn't tell."""

import asyncio
import os
import resource
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kvspill.machine.environment import environment
from kvspill.machine.kernel import Kernel
from kvspill.machine.probes import Probe
from kvspill.measure.watch import LoopLag, WindowWatch
from kvspill.world import World, run_virtual

DISKSTATS = """\
   8       0 sda 900 0 9000 90 800 0 8000 80 0 0 0 0 0 0 0 0 0
   8       1 sda1 {reads} 0 {sectors} 5 20 0 {written} 7 0 0 0 0 0 0 0 0 0
"""
MOUNTSTATS = """\
device rootfs mounted on / with fstype rootfs
device server:/a mounted on {point} with fstype nfs4 statvers=1.1
\topts:\trw
\tbytes:\t1 2 3 4 {read} {written} 7 8
device server:/b mounted on /elsewhere with fstype nfs4 statvers=1.1
\tbytes:\t9 9 9 9 999 999 9 9
"""
IO = "rchar: {0}\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: {1}\nwrite_bytes: 6\n"


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A machine whose only directory is tmp_path, on partition sda1."""
    number = os.stat(tmp_path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    kernel = Kernel(tmp_path / "proc", tmp_path / "sys")
    (kernel.proc / "self").mkdir(parents=True)
    disk = kernel.sys / "devices" / "sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "sda1" / "partition").write_text("1\n")
    (kernel.sys / "dev" / "block").mkdir(parents=True)
    (kernel.sys / "dev" / "block" / device).symlink_to(disk / "sda1")
    (kernel.proc / "self" / "mountinfo").write_text(f"1 0 {device} / / rw - ext4 /dev/sda1 rw\n")
    return kernel


def test_device_bytes_are_the_partitions_sectors_of_512(kernel: Kernel, tmp_path: Path) -> None:
    stats = kernel.proc / "diskstats"
    probe = Probe([tmp_path, tmp_path], kernel)
    stats.write_text(DISKSTATS.format(reads=10, sectors=100, written=1000))
    before = probe.snapshot()
    stats.write_text(DISKSTATS.format(reads=14, sectors=108, written=1016))
    found = probe.difference(before, probe.snapshot())["block_device"]
    assert found["devices"] == ["sda1"]
    assert found["disks"] == ["sda"]
    assert (found["reads"], found["read_bytes"], found["written_bytes"]) == (4, 8 * 512, 16 * 512)


def test_what_the_machine_does_not_tell_is_none_and_not_zero(kernel: Kernel, tmp_path: Path) -> None:
    probe = Probe([tmp_path], kernel)
    found = probe.difference(probe.snapshot(), probe.snapshot())
    assert found["block_device"] is None
    assert found["process_io"] is None
    assert found["nfs"] is None
    assert found["resident_bytes"] is None
    assert found["peak_resident_bytes"] is None
    assert found["cpu_seconds"] >= 0
    assert found["cpu_wait_seconds"] is None


def test_the_wait_for_a_processor_is_that_of_all_threads(kernel: Kernel) -> None:
    tasks = kernel.proc / "self" / "task"
    main = str(os.getpid())
    for thread, wait_ns in (("1", 2_000_000_000), ("2", 500_000_000), (main, 0)):
        (tasks / thread).mkdir(parents=True)
        (tasks / thread / "schedstat").write_text(f"7 {wait_ns} 3\n")
    probe = Probe([], kernel)
    before = probe.snapshot()
    (tasks / "2" / "schedstat").write_text("9 1500000000 4\n")
    (tasks / main / "schedstat").write_text("9 9000000000 4\n")
    assert probe.difference(before, probe.snapshot())["cpu_wait_seconds"] == 1.0


def test_what_others_had_of_the_processors_is_what_was_not_our_own(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two usable processors; the third is none of ours."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 2})
    ticks = os.sysconf("SC_CLK_TCK")
    stat = kernel.proc / "stat"

    def written(busy: int, idle: int, stolen: int) -> None:
        row = f"{busy} 0 0 {idle} 0 0 0 {stolen} 0 0"
        stat.write_text(
            f"cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 {row}\ncpu1 7000 0 0 0 0 0 0 0 0 0\ncpu2 {row}\nintr 1\n"
        )

    probe = Probe([], kernel)
    written(0, 0, 0)
    before = probe.snapshot()
    written(2 * ticks, 7 * ticks, ticks)
    after = replace(probe.snapshot(), cpu_seconds=before.cpu_seconds + 2.0)
    assert probe.difference(before, after)["cpu_others_share"] == pytest.approx(0.2)
    stat.unlink()
    assert probe.difference(before, probe.snapshot())["cpu_others_share"] is None


def test_without_directories_there_is_no_device(kernel: Kernel) -> None:
    (kernel.proc / "diskstats").write_text(DISKSTATS.format(reads=1, sectors=1, written=1))
    assert Probe([], kernel).snapshot().block_device is None


def test_one_directory_without_a_device_makes_the_device_figure_unknown(
    kernel: Kernel, tmp_path: Path
) -> None:
    (kernel.proc / "diskstats").write_text(DISKSTATS.format(reads=1, sectors=1, written=1))
    assert Probe([tmp_path], kernel).snapshot().block_device is not None
    assert Probe([tmp_path, tmp_path / "nowhere"], kernel).snapshot().block_device is None


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a file system in memory")
def test_a_directory_in_memory_beside_one_on_a_disk_leaves_the_disks_figures(
    kernel: Kernel, tmp_path: Path
) -> None:
    (kernel.proc / "diskstats").write_text(DISKSTATS.format(reads=1, sectors=8, written=1))
    number = os.stat("/dev/shm").st_dev
    with (kernel.proc / "self" / "mountinfo").open("a") as mounts:
        mounts.write(f"2 0 {os.major(number)}:{os.minor(number)} / /dev/shm rw - tmpfs tmpfs rw\n")
    seen = Probe([tmp_path, Path("/dev/shm")], kernel).snapshot().block_device
    assert seen is not None
    assert seen["read_bytes"] == 8 * 512
    assert Probe([Path("/dev/shm")], kernel).snapshot().block_device is None


def test_nfs_counts_what_the_server_was_asked_on_that_mount_alone(kernel: Kernel, tmp_path: Path) -> None:
    (kernel.proc / "self" / "mountinfo").write_text(f"1 0 0:99 / {tmp_path} rw - nfs4 server:/a rw\n")
    stats = kernel.proc / "self" / "mountstats"
    probe = Probe([tmp_path], Kernel(kernel.proc, tmp_path / "no-sys"))
    stats.write_text(MOUNTSTATS.format(point=tmp_path, read=1000, written=50))
    before = probe.snapshot()
    stats.write_text(MOUNTSTATS.format(point=tmp_path, read=1700, written=90))
    found = probe.difference(before, probe.snapshot())
    assert found["nfs"] == {"read_bytes": 700, "written_bytes": 40}
    assert found["block_device"] is None


def test_an_export_that_is_mounted_twice_is_counted_once_r5(kernel: Kernel, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    mounts, stats = [], []
    for folder, device in zip(folders, ("0:98", "0:98", "0:99"), strict=True):
        folder.mkdir()
        mounts.append(f"1 0 {device} / {folder} rw - nfs4 server:/a rw\n")
        stats.append(f"device server:/a mounted on {folder} with fstype nfs4\n\tbytes:\t1 2 3 4 700 40 7 8\n")
    (kernel.proc / "self" / "mountinfo").write_text("".join(mounts))
    (kernel.proc / "self" / "mountstats").write_text("".join(stats))
    alone = Kernel(kernel.proc, tmp_path / "no-sys")
    assert Probe(folders[:2], alone).snapshot().nfs == {"read_bytes": 700, "written_bytes": 40}
    assert Probe(folders, alone).snapshot().nfs == {"read_bytes": 1400, "written_bytes": 80}


def test_mounts_of_one_number_are_watched_as_one(kernel: Kernel, tmp_path: Path) -> None:
    """The kernel keeps the counters of a file system, wherever it is mounted."""
    folders = [tmp_path / name for name in "abc"]
    lines = []
    for folder, device in zip(folders, ("0:99", "0:98", "0:98"), strict=True):
        folder.mkdir()
        lines.append(f"1 0 {device} / {folder} rw - nfs4 server:/{folder.name} rw\n")
    (kernel.proc / "self" / "mountinfo").write_text("".join(lines))
    alone = Kernel(kernel.proc, tmp_path / "no-sys")
    assert [Probe([folder], alone).watched for folder in folders] == [("0:99",), ("0:98",), ("0:98",)]
    assert Probe(folders, alone).watched == ("0:98", "0:99")


def test_the_process_own_io_is_a_difference(kernel: Kernel, tmp_path: Path) -> None:
    own = kernel.proc / "self" / "io"
    probe = Probe([tmp_path], kernel)
    own.write_text(IO.format(100, 10))
    before = probe.snapshot()
    own.write_text(IO.format(160, 35))
    found = probe.difference(before, probe.snapshot())["process_io"]
    assert (found["asked_read_bytes"], found["read_bytes"], found["read_calls"]) == (60, 25, 0)


def test_peak_and_present_memory_come_from_the_kernel(kernel: Kernel) -> None:
    (kernel.proc / "self" / "status").write_text("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    snapshot = Probe([], kernel).snapshot()
    assert (snapshot.peak_resident_bytes, snapshot.resident_bytes) == (2 << 20, 1 << 20)


@pytest.mark.real
def test_this_machine_sees_a_synced_write_of_this_process(tmp_path: Path) -> None:
    probe = Probe([tmp_path])
    before = probe.snapshot()
    with open(tmp_path / "file", "wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    found = probe.difference(before, probe.snapshot())
    if found["block_device"] is None:
        pytest.skip("the temporary directory has no block device of its own")
    assert found["block_device"]["written_bytes"] >= 1 << 20
    assert found["process_io"]["asked_written_bytes"] >= 1 << 20
    assert found["peak_resident_bytes"] >= found["resident_bytes"] > 0


def test_the_environment_is_plain_and_the_same_twice(tmp_path: Path) -> None:
    facts = environment([tmp_path])
    assert facts == environment([tmp_path])
    assert facts["python"].count(".") == 2
    assert facts["packages"]["numpy"]
    assert facts["directories"][0]["path"] == str(tmp_path)


def test_lag_is_the_time_between_the_wake_up_asked_for_and_the_wake_up() -> None:
    async def main(world: World) -> LoopLag:
        late_ns = iter((0, 3_000_000, 0, 5_000_000))

        async def sleep_late_ns(duration_ns: int) -> None:
            await world.sleep_ns(duration_ns + next(late_ns, 0))

        lagging = World(0, world.now_ns, virtual=True)
        lagging.sleep_ns = sleep_late_ns  # type: ignore[method-assign]
        lag = LoopLag(lagging, interval_ns=20_000_000)
        sampler = asyncio.ensure_future(lag.run())
        await world.sleep_ns(89_000_000)
        sampler.cancel()
        with suppress(asyncio.CancelledError):
            await sampler
        return lag

    lag = run_virtual(main, seed=0)
    assert lag.histogram.count == 4
    assert lag.histogram.sum_ns == 8_000_000
    statistics = lag.statistics_ms()
    assert statistics is not None
    assert statistics["max"] == 5.0


def test_the_watch_counts_from_the_opening_of_the_window_to_its_end(kernel: Kernel, tmp_path: Path) -> None:
    own = kernel.proc / "self" / "io"

    async def main(world: World) -> tuple[object, dict[str, object] | None]:
        own.write_text(IO.format(0, 100))
        watch = WindowWatch(world, Probe([tmp_path], kernel), window_start_ns=1_000_000_000)
        task = asyncio.ensure_future(watch.run())
        await world.sleep_ns(500_000_000)
        early = watch.finish()
        own.write_text(IO.format(0, 250))
        await world.sleep_ns(1_000_000_000)
        own.write_text(IO.format(0, 300))
        found = watch.finish()
        task.cancel()
        return early, found

    early, found = run_virtual(main, seed=0)
    assert early is None
    assert found is not None
    assert found["process_io"]["read_bytes"] == 50  # type: ignore[index]
    assert found["event_loop_lag_ms"]["max"] == 0.0  # type: ignore[index]


def test_without_a_free_descriptor_counters_are_unknown_and_nothing_is_raised(tmp_path: Path) -> None:
    """S13: a run that is out of descriptors fails requests; its result must not be lost by looking at it."""
    probe = Probe([tmp_path])
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(taken[0] + 1, hard), hard))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        found = probe.snapshot()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        for fd in taken:
            os.close(fd)
    assert found.cpu_wait_seconds is None
    assert found.process_io is None
