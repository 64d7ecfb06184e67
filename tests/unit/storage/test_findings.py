"""What a store's answers mean: its clock beside ours."""

import pytest

from kvspill.storage.findings import clock


@pytest.mark.parametrize(
    ("there", "text", "fault"),
    [
        (1000.0, "as ours", False),
        (1000.5, "within 0 s of ours", False),
        (960.0, "within 40 s of ours", False),
        (900.0, "100 s behind ours", True),
        (1200.2, "200 s ahead of ours", True),
    ],
)
def test_a_clock_far_from_ours_has_a_remedy(there: float, text: str, fault: bool) -> None:
    found = clock(there, 1000.0, 1000.2, 0.0)
    assert found.text == text
    assert bool(found.remedy) is fault


def test_a_store_that_dates_in_whole_seconds_is_not_called_late() -> None:
    assert clock(1000.0, 1000.9, 1001.1, 1.0).text == "within 1 s of ours"
