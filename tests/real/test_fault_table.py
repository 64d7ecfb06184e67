"""No fault passes unseen: exit code, mark, kind, comparison and clean-up, a cell of the table at a time.

`python tests/real/faulting.py DIR` runs all cells.
"""

from pathlib import Path

import pytest

from real.faulting import Cell, cleaned, compiler, complaints, run
from real.rig import left_over

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults"),
]

CELLS = (
    # A read that hangs is in test_hung_device, too.
    pytest.param(Cell("read", "hang", "files"), marks=pytest.mark.slow),
    Cell("write", "hang", "slots"),
    pytest.param(Cell("read", "pause", "files"), marks=pytest.mark.slow),
    pytest.param(Cell("unlink", "pause", "files"), marks=pytest.mark.slow),
    Cell("read", "fail", "buckets", 0.3),
    Cell("write", "fail", "tree", 0.3),
    Cell("read", "short", "slots"),
    Cell("write", "delay", "files"),
    Cell("rename", "fail", "files"),
    Cell("sync", "fail", "buckets"),
)
"""Each verb and kind that matters most, over all layouts."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("healthy")
    (where / "cache").mkdir()
    finished, _ = run(None, where, where / "cache")
    assert finished.code == 0, finished.err
    return where / "result.json"


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_fault_is_reported_and_ranks_nowhere(cell: Cell, healthy: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    finished, faults = run(cell, tmp_path / "run", tmp_path / "cache")
    assert complaints(cell, finished, faults, healthy, tmp_path / "run" / "result.json") == []
    cleaned(tmp_path / "cache")
    assert left_over(tmp_path / "cache") == []
