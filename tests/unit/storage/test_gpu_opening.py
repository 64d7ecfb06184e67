"""A card that its driver does not open: what is said of it, on a fake of cuda-bindings."""

import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvspill.errors import UsageError
from kvspill.records import GIB
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.storage.gpu.cuda import look_at_card


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2


ANSWERS: dict[str, tuple[Any, ...]] = {
    "cuInit": (),
    "cuDeviceGet": (0,),
    "cuDevicePrimaryCtxRetain": (7,),
    "cuDevicePrimaryCtxRelease": (),
    "cuCtxSetCurrent": (),
    "cuMemGetInfo": (GIB, 2 * GIB),
    "cuDriverGetVersion": (13000,),
    "cuDeviceGetName": (b"Fake 1\0",),
    "cuDeviceGetPCIBusId": (b"0000:00:06.0\0",),
    "cuModuleLoadData": (1,),
    "cuModuleGetFunction": (2,),
    "cuGetProcAddress": (3, 0),
}


def driver(monkeypatch: pytest.MonkeyPatch, failing: str = "") -> list[str]:
    """A driver of which one call fails, with as many empty values as it else answers; the calls made."""
    made: list[str] = []

    def answers(name: str, values: tuple[Any, ...]) -> Any:
        def answer(*_: Any) -> tuple[Any, ...]:
            made.append(name)
            if name == failing:
                return (Status.CUDA_ERROR_OUT_OF_MEMORY, *(None for _ in values))
            return (Status.CUDA_SUCCESS, *values)

        return answer

    package, bindings = ModuleType("cuda"), ModuleType("cuda.bindings")
    vars(bindings)["driver"] = SimpleNamespace(
        **{name: answers(name, given) for name, given in ANSWERS.items()}
    )
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    return made


def test_a_card_that_opens_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch)
    facts = look_at_card(0)
    assert (facts.name, facts.free_bytes, facts.total_bytes) == ("Fake 1", GIB, 2 * GIB)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_call_that_fails_is_said_with_its_name_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = driver(monkeypatch, failing=name)
    said = rf"^--gpu-tier: {name}: CUDA_ERROR_OUT_OF_MEMORY; .*use --gpu-tier modelled or off$"
    with pytest.raises(UsageError, match=said):
        look_at_card(0)
    retained = "cuDevicePrimaryCtxRetain" in made and name != "cuDevicePrimaryCtxRetain"
    assert made.count("cuDevicePrimaryCtxRelease") == int(retained)


@pytest.mark.parametrize("name", ["cuDevicePrimaryCtxRetain", "cuMemGetInfo"])
def test_a_tier_of_a_given_size_says_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    driver(monkeypatch, failing=name)
    with pytest.raises(
        UsageError, match=rf"^--gpu-tier: {name}: CUDA_ERROR_OUT_OF_MEMORY; .*--gpu-tier modelled"
    ):
        GpuBackend(GIB)
