"""Which GPU tier a run has, by what the machine has (L6, G2)."""

from typing import Any

import pytest
from pydantic import ValidationError

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import GIB
from kvspill.run import settle
from kvspill.run.settle import settle_gpu
from kvspill.storage.gpu.cuda import CardFacts

NO_DRIVER = "no NVIDIA driver; install it, or use --gpu-tier modelled"


def machine(monkeypatch: pytest.MonkeyPatch, cards: int, free_gib: float = 100) -> None:
    """A machine with so many cards."""
    monkeypatch.setattr(settle, "why_unusable", lambda: None if cards else NO_DRIVER)
    monkeypatch.setattr(settle, "card_count", lambda: cards)
    facts = CardFacts(0, "A card", 140 * GIB, int(free_gib * GIB), "CUDA 13.0", "0000:00:06.0")
    monkeypatch.setattr(settle, "look_at_card", lambda _index: facts)


def settled(config: Config, simulated: bool = False) -> tuple[str, float | None]:
    found = settle_gpu(config, simulated)
    return found.gpu_tier, found.gpu_mem_gb


def test_without_a_gpu_there_is_no_tier_or_a_modelled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0)
    assert settled(Config()) == ("auto", None)
    assert settled(Config(gpu_mem_gb=8)) == ("auto", 8)
    with pytest.raises(UsageError, match=f"^--gpu-tier real: {NO_DRIVER}"):
        settle_gpu(Config(gpu_tier="real"), False)


def test_with_a_gpu_the_tier_is_real_and_has_16_gib_or_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 1)
    assert settled(Config()) == ("real", 16.0)
    assert settled(Config(gpu_mem_gb=40)) == ("real", 40)
    assert settled(Config(gpu_mem_gb=0)) == ("auto", 0)
    assert settled(Config(gpu_tier="modelled", gpu_mem_gb=2)) == ("modelled", 2)
    assert settled(Config(gpu_tier="off")) == ("off", None)
    machine(monkeypatch, 1, free_gib=10)
    assert settled(Config()) == ("real", 8.0)


def test_a_simulation_uses_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 1)
    assert settled(Config(gpu_mem_gb=4), simulated=True) == ("auto", 4)
    assert settled(Config(), simulated=True) == ("auto", None)


def test_reads_of_the_storage_end_on_a_real_gpu_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, 1)
    assert settle_gpu(Config(), False).load_to == "gpu"
    assert settle_gpu(Config(load_to="host"), False).load_to == "host"
    assert settle_gpu(Config(gpu_tier="modelled", gpu_mem_gb=2), False).load_to == "auto"
    with pytest.raises(UsageError, match=r"^--load-to gpu: no GPU is used"):
        settle_gpu(Config(load_to="gpu", gpu_tier="off"), False)
    machine(monkeypatch, 0)
    with pytest.raises(UsageError, match=f"^--load-to gpu: {NO_DRIVER}"):
        settle_gpu(Config(load_to="gpu"), False)
    assert settle_gpu(Config(load_to="gpu"), True).load_to == "gpu"


@pytest.mark.parametrize("given", ["0,1", ["0,1"], ["0", "1"], [0, 1], (0, 1)])
def test_several_cards_are_named_with_commas_or_one_by_one(given: Any) -> None:
    assert Config(gpu_device=given).gpu_device == (0, 1)


@pytest.mark.parametrize("given", ["", "0,,1", "a", "0,-1", []])
def test_what_is_no_list_of_cards_is_refused(given: Any) -> None:
    with pytest.raises((UsageError, ValidationError), match=r"gpu.device"):
        Config(gpu_device=given)


def test_a_card_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 2)
    assert settle_gpu(Config(gpu_device=(0, 1)), False).gpu_bytes == 32 * GIB
    with pytest.raises(UsageError, match=r"^--gpu-device 2: this machine has GPUs 0 to 1; name one of those"):
        settle_gpu(Config(gpu_device=(0, 2)), False)
    with pytest.raises(UsageError, match=r"^--num-gpus 3: the driver sees 2; give at most 2$"):
        settle_gpu(Config(num_gpus=3, gpu_mem_gb=1), False)
