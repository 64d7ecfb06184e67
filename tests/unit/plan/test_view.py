"""The words of a plan: figures with the digits that they have."""

import pytest

from kvspill.plan.view import _helps, _wear_line
from kvspill.records import GIB


@pytest.mark.parametrize(
    ("gib", "shown"), [(18_459.67, "18,460 GiB"), (99.5, "99.50 GiB"), (0.25, "256 MiB")]
)
def test_what_is_written_in_a_day_is_no_measurement_to_the_hundredth(gib: float, shown: str) -> None:
    text = _wear_line({"written_bytes_per_day_per_drive": gib * GIB})
    assert text.startswith(f"Wear: {shown} a day are written to a drive;")


def test_a_drive_that_is_not_written_to_is_said_not_to_wear() -> None:
    text = _wear_line({"written_bytes_per_day_per_drive": 0})
    assert text == "Wear: nothing is written to a drive under this load."


@pytest.mark.parametrize(
    ("speed", "dram", "said"),
    [
        (8, 5, "What would help: twice the storage speed would hold about 8 users."),
        (
            5,
            5,
            "What would help: Use faster memory or fewer --users. Twice the storage speed or twice the DRAM "
            "would hold no more.",
        ),
    ],
)
def test_what_holds_no_more_is_not_said_to_help(speed: int, dram: int, said: str) -> None:
    tried = {"storage speed": speed, "DRAM": dram}
    rows = [{"figure": name, "holds": holds, "holds_at_least": False} for name, holds in tried.items()]
    chosen = {"holds": 5, "helps": "Use faster memory or fewer --num-users."}
    assert list(_helps({"asked_is": "users", "would_help": rows, "chosen": chosen})) == [said]
