"""Closing waits only so long for the removal of files; another process removes the rest."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kvspill
from kvspill.config import Config
from kvspill.records import NS_PER_SEC, Tier
from kvspill.result.schema_honesty import Caution
from kvspill.run import cleaner
from kvspill.run.closing import close_all_now, close_within
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import LEFT_BEHIND, Backend
from kvspill.storage.profiles import PRESETS
from kvspill.world import World, run_virtual
from real.rig import wait_until


class SlowToClose(ModelledBackend):
    def __init__(self, world: World, seconds: float) -> None:
        super().__init__("null", PRESETS["null"][Tier.STORAGE], world.now_ns)
        self._world = world
        self._seconds = seconds
        self.closed = False

    async def close(self) -> None:
        await self._world.sleep_ns(round(self._seconds * NS_PER_SEC))
        self.closed = True


@pytest.mark.parametrize(("takes", "patience", "ends"), [(1, 2.0, 1), (10, 2.0, 2), (10, None, 10)])
def test_nobody_waits_longer_than_asked(takes: int, patience: float | None, ends: int) -> None:
    async def main(world: World) -> Any:
        backend = SlowToClose(world, takes)
        opened: list[Backend] = [backend]
        assert await close_within(patience, opened, [], Progress(quiet=True)) == []
        assert backend.closed == bool(opened)
        return world.now_ns()

    assert run_virtual(main, seed=1) == ends * NS_PER_SEC


class Starved(SlowToClose):
    async def close(self) -> None:
        raise SystemError("error return without exception set")

    def close_now(self) -> None:
        self.closed = True


def test_what_the_interpreter_cannot_await_without_memory_is_closed_nevertheless() -> None:
    async def main(world: World) -> None:
        backend = Starved(world, 0)
        assert await close_within(2.0, [backend], [], Progress(quiet=True)) == []
        assert backend.closed

    run_virtual(main, seed=1)


class NeverClosed(SlowToClose):
    """A store whose answers its client cannot make sense of, or a plug-in with a defect."""

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        raise TypeError("unsupported operand")


def test_what_cannot_be_closed_is_named_and_costs_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    """An error of another kind than expected went past the result that was measured, which was lost."""

    async def main(world: World) -> list[Caution]:
        backend, other = NeverClosed(world, 0), SlowToClose(world, 0)
        opened: list[Backend] = [backend, other]
        left = await close_within(2.0, opened, [], Progress(quiet=True))
        assert other.closed
        # What a run does last must not fail for it either.
        close_all_now(opened)
        return left

    (left,) = run_virtual(main, seed=1)
    assert left.code == LEFT_BEHIND
    assert "could not be closed (TypeError: unsupported operand)" in left.message
    assert "could not be closed" in capsys.readouterr().err


LEAVER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kvspill.run.closing import close_all_now, close_within
from kvspill.run.progress import Progress
from kvspill.storage.rundir import RunDir

class Slow:
    async def close(self):
        await asyncio.sleep(60)
    def notes(self):
        return []

run = RunDir(Path(sys.argv[2]))
backends = [Slow()]
print(asyncio.run(close_within(0.1, backends, [Path(sys.argv[2])], Progress(quiet=False))), run.path)
sys.stdin.read()
"""
"""A run whose files another process has to remove, once its standard input is closed."""
PLANTED = (
    "signal",
    "json",
    "os",
    "time",
    "re",
    "stat",
    "secrets",
    "contextlib",
    "pathlib",
    "kvspill",
    "site",
)


def leave(source: Path, root: Path, where: Path, **environment: str) -> "subprocess.Popen[str]":
    """Start it in a directory; -P keeps that directory out of its own way, but not out of its children's."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", LEAVER, str(source), str(root)],
        cwd=where,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


SOURCE = Path(kvspill.__file__).parents[1]


@pytest.mark.real
def test_the_rest_is_removed_once_the_run_has_ended_and_nothing_planted_is_imported(tmp_path: Path) -> None:
    root, here = tmp_path / "disk", tmp_path / "here"
    root.mkdir()
    here.mkdir()
    for name in PLANTED:
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})")
    running = leave(SOURCE, root, here, PYTHONPATH="", PYTHONSTARTUP=str(here / "os.py"))
    assert running.stdout is not None
    assert running.stdout.readline().startswith("[] ")
    time.sleep(0.3)
    assert os.listdir(root) != []
    _out, said = running.communicate()
    assert f"`kvspill clean {root}` removes them." in said
    wait_until(lambda: not os.listdir(root))
    assert not (tmp_path / "executed").exists()


@pytest.mark.real
def test_a_checkout_that_is_not_installed_cleans_up_too(tmp_path: Path) -> None:
    root, checkout = tmp_path / "disk", tmp_path / "checkout"
    root.mkdir()
    shutil.copytree(SOURCE / "kvspill", checkout / "kvspill", ignore=shutil.ignore_patterns("__pycache__"))
    running = leave(checkout, root, tmp_path)
    _out, said = running.communicate()
    assert "in the background" in said, said
    wait_until(lambda: not os.listdir(root))
    assert list((checkout / "kvspill" / "run").glob("__pycache__/cleaner*")), "that checkout's own was run"


@pytest.mark.real
@pytest.mark.parametrize("hangs", [False, True])
def test_where_no_cleaner_can_be_started_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hangs: bool
) -> None:
    monkeypatch.setattr(cleaner, "_PACKAGES", str(tmp_path))

    async def main(world: World) -> tuple[list[Caution], bool]:
        backend = SlowToClose(world, 10)
        left = await close_within(2.0, [backend], [tmp_path], Progress(quiet=False), hangs)
        return left, backend.closed

    left, closed = run_virtual(main, seed=1)
    assert closed is not hangs
    said = capsys.readouterr().err
    assert "No module named 'kvspill'" in said
    assert [warning.code for warning in left] == (["left_behind"] if hangs else [])
    assert (f"`kvspill clean {tmp_path}`" in said) is hangs


@pytest.mark.parametrize("asked", ["getpid", "getppid"])
def test_a_run_waits_where_others_are_killed_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: str
) -> None:
    """As the first process of a container, or a service, it left its directory behind and exited with 0."""
    monkeypatch.setattr(os, asked, lambda: 1)

    async def main(world: World) -> tuple[list[Caution], bool]:
        backend = SlowToClose(world, 10)
        return await close_within(2.0, [backend], [tmp_path], Progress(quiet=False)), backend.closed

    assert run_virtual(main, seed=1) == ([], True)
    said = "no other process can do it (a container or service ends with this one)"
    assert said in capsys.readouterr().err


@pytest.mark.real
def test_a_complaint_before_the_word_is_not_taken_for_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaint = "import os; os.write(2, b'ERROR: ld.so: object x.so cannot be preloaded: ignored.\\n'); "
    monkeypatch.setattr(cleaner, "_CODE", complaint + "os.write(1, b'ready\\n')")
    assert cleaner.start_cleaner(tmp_path) is None
    monkeypatch.setattr(cleaner, "_CODE", complaint + "raise SystemExit('no room')")
    assert cleaner.start_cleaner(tmp_path) == "no room"


@pytest.mark.real
def test_a_cleaner_that_complains_and_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "_CODE", "import time; print('oh', flush=True); time.sleep(60)")
    monkeypatch.setattr(cleaner, "_READY_SECONDS_MAX", 0.5)
    assert cleaner.start_cleaner(tmp_path) == "it was not ready after 0.5 s"


def test_closing_may_take_what_is_left_of_the_five_seconds_and_never_less_than_its_own() -> None:
    plan = Plan(Config(), False, 0, closing_seconds_max=1.5)
    assert plan.closing_seconds() == 1.5
    seconds = replace(plan, closed_by_seconds=time.monotonic() + 3).closing_seconds()
    assert seconds is not None
    assert 2.5 < seconds <= 3
    assert replace(plan, closed_by_seconds=time.monotonic() - 3).closing_seconds() == 1.5
    assert replace(plan, closing_seconds_max=None).closing_seconds() is None
