"""Preconditioning writes at least one capacity, stops when the speed is steady, and leaves nothing."""

import io
from dataclasses import replace
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.records import GIB
from kvspill.run.precondition import Preconditioned, Preconditioner, precondition, preconditioning_cautions
from kvspill.run.progress import Progress
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Capabilities
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual


class FadingBackend(ModelledBackend):
    """A drive with a fast cache: its writes slow down step by step for the first 20 GiB."""

    written_bytes = 0

    async def write(self, batch: Any) -> Any:
        for item in batch:
            self.written_bytes += item.ref.nbytes
        slow = 1 + 4 * min(1.0, self.written_bytes / (20 * GIB))
        self._model = DeviceModel(2.0, 2.0 / slow)
        return await super().write(batch)


def run(backend_type: Any, capacity_bytes: int) -> Any:
    async def main(world: World) -> Any:
        backend = backend_type("modelled", DeviceModel(2.0, 2.0), world.now_ns)
        text = io.StringIO()
        done = await Preconditioner(world, backend, capacity_bytes, Progress(False, text)).run()
        return done, backend, text.getvalue()

    return run_virtual(main, seed=1)


def test_a_short_preconditioning_did_not_take_0_seconds() -> None:
    assert Preconditioned(GIB, 0.3, True).text == "preconditioned with 1.00 GiB in less than 1 s: steady"
    assert Preconditioned(GIB, 1.0, True).text == "preconditioned with 1.00 GiB in 1 s: steady"


def test_an_even_device_gets_its_capacity_written_once() -> None:
    done, backend, text = run(ModelledBackend, 60 * GIB)
    assert done.steady
    assert 60 * GIB <= done.written_bytes < 66 * GIB
    assert backend._objects == set()
    assert "first pass over in" in text


def test_a_fading_device_is_written_until_its_speed_has_settled() -> None:
    done, backend, _text = run(FadingBackend, 8 * GIB)
    assert done.steady
    assert done.written_bytes > 20 * GIB
    assert backend._objects == set()


class RestlessBackend(ModelledBackend):
    """A device that is slow for two GiB, fast for two, and so on for as long as it is written."""

    written_bytes = 0

    async def write(self, batch: Any) -> Any:
        self.written_bytes += sum(item.ref.nbytes for item in batch)
        self._model = DeviceModel(2.0, 2.0 if self.written_bytes // (2 * GIB) % 2 else 0.5)
        return await super().write(batch)


def test_a_device_that_never_settles_is_written_ten_times_over_and_not_more() -> None:
    done, backend, text = run(RestlessBackend, 4 * GIB)
    assert not done.steady
    assert done.written_bytes == backend.written_bytes == 40 * GIB
    assert "s more at most" in text


def test_a_capacity_that_is_written_in_less_than_two_seconds_settles_too() -> None:
    done, _backend, _text = run(ModelledBackend, GIB)
    assert done.steady
    assert done.seconds < 2
    assert done.written_bytes <= 10 * GIB


def test_a_device_that_did_not_settle_leaves_a_warning_in_the_result() -> None:
    async def main(world: World) -> Any:
        backend = RestlessBackend("files", DeviceModel(2.0, 2.0), world.now_ns)
        backend.__class__ = type("Real", (RestlessBackend,), {"capabilities": Capabilities("files", False)})
        return await precondition(
            world, backend, Config(precondition=True), 4 * GIB, Progress(False, io.StringIO())
        )

    (warning,) = preconditioning_cautions(run_virtual(main, seed=1))
    assert warning.code == "not_preconditioned"
    assert "not steady yet" in warning.message


def test_a_failing_device_ends_it_with_the_reason() -> None:
    class FailingBackend(ModelledBackend):
        async def write(self, batch: Any) -> Any:
            return [replace(completion, error="EIO") for completion in await super().write(batch)]

    with pytest.raises(KvspillError, match="writing failed with EIO"):
        run(FailingBackend, 8 * GIB)


@pytest.mark.parametrize(("gib", "threads"), [(3, 0), (20, 2), (1, 64)])
def test_a_given_size_is_what_is_written_whether_steady_or_not(gib: int, threads: int) -> None:
    async def main(world: World) -> Any:
        backend = ModelledBackend("files", DeviceModel(2.0, 2.0), world.now_ns)
        backend.__class__ = type("Real", (ModelledBackend,), {"capabilities": Capabilities("files", False)})
        config = Config(precondition=True, precondition_size_gb=gib, precondition_threads=threads)
        done = await precondition(world, backend, config, 4 * GIB, Progress(True, io.StringIO()))
        return done, backend

    done, backend = run_virtual(main, seed=1)
    assert gib * GIB <= done.written_bytes < (gib + 0.1) * GIB
    assert done.steady is (gib > 4)
    assert backend._objects == set()
