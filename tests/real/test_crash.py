"""After a power loss nothing of ours stays once clean has been asked, and nothing of others is touched."""

from pathlib import Path

import pytest

from real.crashing import crash

pytestmark = pytest.mark.real


def test_images_of_a_device_taken_during_a_run_can_be_cleaned(tmp_path: Path) -> None:
    tally = crash(4, 1, tmp_path)
    assert tally.images == 4
    assert tally.with_a_run
    assert (tally.left, tally.foreign_touched) == (0, 0)
