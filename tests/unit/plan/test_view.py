"""The words of a plan: figures with the digits that they have."""

import pytest

from kvspill.plan.view import _wear_line
from kvspill.records import GIB


@pytest.mark.parametrize(
    ("gib", "shown"), [(18_459.67, "18,460 GiB"), (99.5, "99.50 GiB"), (0.25, "256 MiB")]
)
def test_what_is_written_in_a_day_is_no_measurement_to_the_hundredth(gib: float, shown: str) -> None:
    text = _wear_line({"written_bytes_per_day_per_drive": gib * GIB})
    assert text.startswith(f"Wear: {shown} a day are written to a drive;")
