"""Work beside a run ends where its device does not answer any more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvspill.records import MIB
from kvspill.run import device_work
from kvspill.run.device_work import HungError, prepare_backend, run_device_work
from kvspill.run.progress import Progress
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.profiles import NULL
from kvspill.world import World


class Hanging(ModelledBackend):
    """Answers no read, and never gets ready where it is asked to."""

    def __init__(self, world: World, age_ns: int = 1 << 40):
        super().__init__("hanging", NULL, world.now_ns)
        self.age_ns = age_ns
        self.closed = False

    async def prepare(self, _progress: Any) -> None:
        await asyncio.Event().wait()

    async def read(self, _batch: Any) -> Any:
        await asyncio.Event().wait()

    def stuck(self, _now_ns: int, older_than_ns: int) -> list[int]:
        return [self.age_ns] if self.age_ns >= older_than_ns else []

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_work, "_LOOK_SECONDS", 0.02)


@pytest.mark.parametrize("prepares", [False, True])
def test_a_device_that_hangs_is_not_waited_for_without_end(
    prepares: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(device_work, "HUNG_SECONDS", 0.1)
    made: list[Hanging] = []

    async def main(world: World, opened: list[Backend]) -> None:
        made.append(Hanging(world))
        opened.extend(made)
        if prepares:
            await prepare_backend(made[0])
        await made[0].read([ObjectRef("k", 1, MIB)])

    with pytest.raises(HungError, match=r"for 0.1 s; check the device and the kernel log"):
        run_device_work(main, 0, [tmp_path], Progress(quiet=True))
    assert made[0].closed


def test_what_takes_long_and_does_not_hang_is_waited_for(tmp_path: Path) -> None:
    async def main(world: World, opened: list[Backend]) -> str:
        opened.append(Hanging(world, age_ns=10**9))
        await asyncio.sleep(0.1)
        return "found"

    assert run_device_work(main, 0, [tmp_path], Progress(quiet=True)) == ("found", [])


def test_what_is_cut_off_is_over_before_its_backends_are_closed_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_work, "HUNG_SECONDS", 0.1)
    seen: list[str] = []

    class Noting(Hanging):
        async def close(self) -> None:
            seen.append("closed")

    async def main(world: World, opened: list[Backend]) -> None:
        opened.append(Noting(world))
        try:
            await opened[0].read([])
        finally:
            await asyncio.sleep(0.01)
            seen.append("cut off")
            raise ValueError("as a consequence")

    with pytest.raises(HungError):
        run_device_work(main, 0, [tmp_path], Progress(quiet=True))
    assert seen == ["cut off", "closed"]
    assert caplog.text == ""
