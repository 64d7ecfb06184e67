"""The look at a storage before a load: how long it looks, and what it says of a speed that wavers."""

from collections.abc import Sequence
from itertools import count

import pytest

from kvspill.records import GIB, NS_PER_SEC, Completion
from kvspill.run.bandwidth import Bandwidth, _measure
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import WriteItem
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual


class Wavering(ModelledBackend):
    """Every other round of writing takes the given times as long."""

    def __init__(self, world: World, gib_per_sec: float, factor: float):
        super().__init__("wavering", DeviceModel(gib_per_sec, gib_per_sec), world.now_ns)
        self._world = world
        self._factor = factor
        self._round = count()
        self.written_bytes = 0

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        began_ns = self._world.now_ns()
        done = list(await super().write(batch))
        self.written_bytes += sum(item.ref.nbytes for item in batch)
        if next(self._round) % 2:
            await self._world.sleep_ns(round((self._factor - 1) * (self._world.now_ns() - began_ns)))
        return done


def looked(gib_per_sec: float, factor: float) -> tuple[Bandwidth, float, float]:
    """What was seen, the seconds that it took, and the GiB that were written."""

    async def main(world: World) -> tuple[Bandwidth, float, float]:
        backend = Wavering(world, gib_per_sec, factor)
        found = await _measure(world, backend)
        return found, world.now_ns() / NS_PER_SEC, backend.written_bytes / GIB

    return run_virtual(main, 1)


def test_a_disk_that_wavers_is_looked_at_for_seconds_and_its_spread_stands_beside_its_speed() -> None:
    found, seconds, _gib = looked(0.5, 4.0)
    assert len(found.write_rounds) >= 3
    assert found.write_gib_per_sec == pytest.approx(0.2, rel=0.3)
    assert found.texts[1] == "256 MiB/s (write rounds from 128 MiB/s to 512 MiB/s)"
    assert found.texts[0] == "512 MiB/s"
    assert seconds < 8


@pytest.mark.parametrize(("gib_per_sec", "written"), [(8.0, 2.0), (0.02, 0.25)])
def test_the_look_is_bounded_in_bytes_and_in_time(gib_per_sec: float, written: float) -> None:
    found, _seconds, gib = looked(gib_per_sec, 1.0)
    assert gib == written
    assert found.write_gib_per_sec == pytest.approx(gib_per_sec, rel=0.01)
    assert "(" not in found.texts[1]
