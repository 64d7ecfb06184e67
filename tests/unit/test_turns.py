"""Of runs that would replace the same file at the same moment one does so, and the others are told."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from kvspill.outputs import write_whole
from kvspill.spare import stamp_of
from kvspill.turns import Overtaken, in_turn

RUNS = 6


def test_of_runs_that_replace_a_file_at_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them would have found it unchanged: it takes a while to be replaced."""
    file, real = tmp_path / "r.json", os.replace

    def replace(old: Path, new: Path) -> None:
        time.sleep(0.2)
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    file.write_text("of last week")
    before = stamp_of(file)

    def run(number: int) -> int | None:
        try:
            write_whole(file, str(number), turn=partial(in_turn, before=before))
        except Overtaken:
            return None
        return number

    with ThreadPoolExecutor(RUNS) as runs:
        done = [number for number in runs.map(run, range(RUNS)) if number is not None]
    assert [file.read_text()] == [str(number) for number in done]
    assert list(tmp_path.iterdir()) == [file], "the others leave nothing"


@pytest.mark.parametrize("change", ["replaced", "written to", "removed"])
def test_a_file_that_has_changed_is_left_as_it_is(tmp_path: Path, change: str) -> None:
    file = tmp_path / "r.json"
    file.write_text("of last week")
    before = stamp_of(file)
    if change == "removed":
        file.unlink()
    elif change == "replaced":
        write_whole(file, "of another")
    else:
        os.utime(file, ns=(0, 0))
    with pytest.raises(Overtaken):
        write_whole(file, "mine", turn=partial(in_turn, before=before))
    assert [path.read_text() for path in tmp_path.iterdir()] in ([], ["of another"], ["of last week"])


def test_a_file_without_a_lock_is_looked_at_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_fd: int, _how: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", no_locks)
    file = tmp_path / "r.json"
    file.write_text("of last week")
    before = stamp_of(file)
    write_whole(file, "mine", turn=partial(in_turn, before=before))
    with pytest.raises(Overtaken):
        write_whole(file, "mine again", turn=partial(in_turn, before=before))
    assert file.read_text() == "mine"
