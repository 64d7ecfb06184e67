"""Getting the storage of a run ready."""

from typing import Any

import pytest

from kvspill.errors import KvspillError
from kvspill.records import NS_PER_SEC, Tier
from kvspill.run.backends import prepare_storage
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import PRESETS
from kvspill.world import World, run_virtual


class SlowToStart(ModelledBackend):
    """Takes so many steps of a second, and hangs at one of them."""

    def __init__(self, world: World, steps: int, hangs_at: int | None) -> None:
        super().__init__("null", PRESETS["null"][Tier.STORAGE], world.now_ns)
        self._world, self._steps, self._hangs_at = world, steps, hangs_at

    async def prepare(self, progress: Any) -> None:
        for step in range(self._steps):
            await self._world.sleep_ns(NS_PER_SEC if step != self._hangs_at else 10**6 * NS_PER_SEC)
            progress("files", step + 1, self._steps)


def test_a_device_that_hangs_before_the_load_ends_the_run() -> None:
    """It was waited for without end: only operations of the load were watched."""

    said: list[str] = []

    async def main(world: World) -> Any:
        with pytest.raises(KvspillError, match="--max-stall 5: the storage was not ready after so many"):
            await prepare_storage(SlowToStart(world, 20, 3), lambda *_: None, said.append, 5.0)
        return world.now_ns()

    assert run_virtual(main, seed=1) == 8 * NS_PER_SEC


def test_a_device_that_moves_on_may_take_long() -> None:
    said: list[str] = []

    async def main(world: World) -> Any:
        await prepare_storage(SlowToStart(world, 20, None), lambda *_: None, said.append, 5.0)
        return world.now_ns()

    assert run_virtual(main, seed=1) == 20 * NS_PER_SEC
    assert said == []


def test_a_device_that_does_not_begin_to_move_is_spoken_of_before_it_is_given_up() -> None:
    said: list[str] = []

    async def main(world: World) -> Any:
        with pytest.raises(KvspillError, match="--max-stall 60"):
            await prepare_storage(SlowToStart(world, 20, 0), lambda *_: None, said.append, 60.0)
        return world.now_ns()

    assert run_virtual(main, seed=1) == 60 * NS_PER_SEC
    assert said == ["the storage is not ready yet; it is given up after 60 s (--max-stall)"]
