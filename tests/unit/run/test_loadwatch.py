"""What is watched beside a window: the device's counters as rates, and operations under way."""

import asyncio
from pathlib import Path

import pytest

from kvspill.machine.kernel import Kernel
from kvspill.machine.probes import Probe
from kvspill.measure.recorder import Recorder
from kvspill.records import NS_PER_SEC
from kvspill.run.loadwatch import DeviceWatch
from kvspill.world import World, run_virtual
from unit.machine.test_probes import kernel

__all__ = ["kernel"]
SDA1 = "   8       1 sda1 {reads} 0 0 5 {writes} 0 0 7 0 {busy_ms} {queue_ms} 0 0 0 0 0 0\n"


def counted(kernel: Kernel, reads: int, writes: int, busy_ms: int, queue_ms: int) -> None:
    text = SDA1.format(reads=reads, writes=writes, busy_ms=busy_ms, queue_ms=queue_ms)
    (kernel.proc / "diskstats").write_text(text)


def watched(kernel: Kernel, folder: Path, seconds: float) -> dict[str, list[int]]:
    async def main(world: World) -> dict[str, list[int]]:
        recorder = Recorder(NS_PER_SEC, round((1 + seconds) * NS_PER_SEC))
        watch = DeviceWatch(world, Probe([folder], kernel), recorder)
        task = asyncio.ensure_future(watch.run())
        counted(kernel, 5, 5, 50, 500)
        await world.sleep_ns(NS_PER_SEC + NS_PER_SEC // 2)
        counted(kernel, 25, 15, 650, 4500)
        await world.sleep_ns(round((seconds - 0.5) * NS_PER_SEC))
        watch.finish()
        task.cancel()
        return recorder.timeline.columns(world.now_ns())

    return run_virtual(main, seed=0)


def test_the_growth_of_the_counters_is_a_rate_in_its_second(kernel: Kernel, tmp_path: Path) -> None:
    columns = watched(kernel, tmp_path, 2)
    assert columns["device_busy_ms_per_sec"] == [600, 0]
    assert columns["device_queue_ms_per_sec"] == [4000, 0]
    assert columns["device_ios_per_sec"] == [30, 0]


def test_the_last_part_of_a_second_counts_where_it_is_long_enough(kernel: Kernel, tmp_path: Path) -> None:
    assert watched(kernel, tmp_path, 0.75)["device_busy_ms_per_sec"] == [800]
    assert watched(kernel, tmp_path, 1.25)["device_busy_ms_per_sec"] == [600, 600]


@pytest.mark.parametrize("text", ["", "   8       0 sda 1 2 3\n"])
def test_a_device_that_the_kernel_does_not_count_has_no_columns(
    kernel: Kernel, tmp_path: Path, text: str
) -> None:
    async def main(world: World) -> dict[str, list[int]]:
        (kernel.proc / "diskstats").write_text(text)
        recorder = Recorder(0, 2 * NS_PER_SEC)
        watch = DeviceWatch(world, Probe([tmp_path], kernel), recorder)
        await watch.run()
        watch.finish()
        return recorder.timeline.columns(2 * NS_PER_SEC)

    assert run_virtual(main, seed=0) == {}
