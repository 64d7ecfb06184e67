"""Whole runs with a real GPU tier on a fake of the driver: several cards, and one that is lost on the way."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.machine.gpu import DeviceError
from kvspill.storage.gpu import backend
from kvspill.storage.gpu.cuda import CardFacts
from unit.storage.fake_gpu import FakeCard

pytestmark = pytest.mark.real
LOST = "CUDA_ERROR_DEVICE_LOST"


class LosableCard(FakeCard):
    """A card that answers nothing any more after so many copies."""

    copies_left: float = float("inf")

    def _called(self, name: str) -> None:
        if name == "copy_in":
            self.copies_left -= 1
        if self.copies_left < 0:
            raise DeviceError(LOST, name)
        super()._called(name)

    def bind(self) -> None:
        self._called("bind")


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> list[LosableCard]:
    """A machine with two such cards; those that a run has opened."""
    opened: list[LosableCard] = []

    def open_card(index: int) -> LosableCard:
        opened.append(LosableCard(index))
        return opened[-1]

    def look(index: int) -> CardFacts:
        return FakeCard(index).facts

    monkeypatch.setattr(backend, "CudaCard", open_card)
    monkeypatch.setattr("kvspill.run.settle.why_unusable", lambda: None)
    monkeypatch.setattr("kvspill.run.settle.card_count", lambda: 2)
    monkeypatch.setattr("kvspill.run.settle.look_at_card", look)
    return opened


def run(tmp_path: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    output = tmp_path / "result.json"
    (tmp_path / "cache").mkdir()
    given = (
        *("--model", "tiny-1b", "--num-users", "3", "--gpu-mem-gb", "0.05", "--cpu-mem-gb", "0"),
        *(
            "--storage-capacity-gb",
            "0.5",
            "--generation-mode",
            "none",
            "--io-threads",
            "2",
            "--io-size",
            "1MiB",
        ),
        *(
            "--cache-dir",
            str(tmp_path / "cache"),
            "--output",
            str(output),
            "--quiet",
            "--seed",
            "3",
            "--request-rate",
            "1000",
        ),
    )
    code = main(["run", *given, *argv])
    assert not list((tmp_path / "cache").iterdir())
    result: dict[str, Any] = json.loads(output.read_text())
    return code, result


def tier(result: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(tier for tier in result["tiers"] if tier["tier"] == name)
    return found


def test_two_cards_are_one_tier_and_what_storage_reads_ends_on_them(
    tmp_path: Path, cards: list[LosableCard]
) -> None:
    code, result = run(tmp_path, "--gpu-device", "0,1", "--max-requests", "16")
    assert code == 0
    assert [card.facts.index for card in cards] == [0, 1]
    gpu = tier(result, "gpu")
    assert gpu["backend"] == "gpu"
    assert gpu["limit_bytes"] == 2 * int(0.05 * (1 << 30))
    assert all(card.calls.count("copy_rows") and card.calls.count("copy_out") for card in cards)
    assert gpu["counters"]["pcie_load_bytes"] > 0
    assert tier(result, "storage")["counters"]["gpu_direct"] == "through host memory"
    assert all(card.closed and not card.registered for card in cards)


def test_reads_end_in_host_memory_where_that_is_asked_for(tmp_path: Path, cards: list[LosableCard]) -> None:
    code, result = run(tmp_path, "--load-to", "host", "--max-requests", "16")
    assert code == 0
    assert tier(result, "gpu")["counters"]["pcie_load_bytes"] == 0
    assert "gpu_direct" not in tier(result, "storage")["counters"]
    assert not cards[0].registered


def test_a_card_that_is_lost_is_counted_by_kind_and_holds_nobody_up(
    tmp_path: Path,
    cards: list[LosableCard],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(LosableCard, "copies_left", 40)
    code, result = run(tmp_path, "--duration", "2", "--warmup", "0")
    assert code == 1
    assert result["faulty"] is True
    assert {row["kind"] for row in result["honesty"]["errors"]} == {LOST}
    assert cards[0].closed
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert LOST in said
