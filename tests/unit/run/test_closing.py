"""Closing waits only so long for the removal of files; another process removes the rest."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from kvspill.config import Config
from kvspill.records import NS_PER_SEC, Tier
from kvspill.run.closing import close_within
from kvspill.run.progress import Progress
from kvspill.run.trial import Plan
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import PRESETS
from kvspill.world import run_virtual


class SlowToClose(ModelledBackend):
    def __init__(self, world, seconds):
        super().__init__("null", PRESETS["null"][Tier.STORAGE], world.now_ns)
        self._world = world
        self._seconds = seconds
        self.closed = False

    async def close(self):
        await self._world.sleep_ns(self._seconds * NS_PER_SEC)
        self.closed = True


@pytest.mark.parametrize(("takes", "patience", "ends"), [(1, 2.0, 1), (10, 2.0, 2), (10, None, 10)])
def test_nobody_waits_longer_than_asked(takes, patience, ends):
    async def main(world):
        backend = SlowToClose(world, takes)
        opened = [backend]
        assert await close_within(patience, opened, [], Progress(quiet=True)) == []
        assert backend.closed == bool(opened)
        return world.now_ns()

    assert run_virtual(main, seed=1) == ends * NS_PER_SEC


@pytest.mark.real
def test_the_rest_is_removed_once_the_run_has_ended(tmp_path):
    """The other process waits for the end of the one that holds the lock."""
    holder = (
        "import sys; from pathlib import Path; from kvspill.storage.rundir import RunDir;"
        "run = RunDir(Path(sys.argv[1]));"
        "print(run.path, flush=True); sys.stdin.read()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    path = running.stdout.readline().strip()
    clean = [sys.executable, "-m", "kvspill.cli.main", "clean", "--after", str(running.pid), str(tmp_path)]
    cleaner = subprocess.Popen(clean, stdout=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        cleaner.wait(timeout=1)
    assert os.path.isdir(path)
    running.communicate()
    cleaner.wait(timeout=30)
    assert os.listdir(tmp_path) == []


def test_closing_may_take_what_is_left_of_the_five_seconds_and_never_less_than_its_own() -> None:
    plan = Plan(Config(), False, 0, closing_seconds_max=1.5)
    assert plan.closing_seconds() == 1.5
    assert 2.5 < replace(plan, closed_by_seconds=time.monotonic() + 3).closing_seconds() <= 3
    assert replace(plan, closed_by_seconds=time.monotonic() - 3).closing_seconds() == 1.5
    assert replace(plan, closing_seconds_max=None).closing_seconds() is None
