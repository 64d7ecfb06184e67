"""When a process counts as ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvspill.machine.kernel import process_exists
from kvspill.run.cleaner import wait_for_end
from real.rig import wait_until
from unit.machine.kernel_tree import Tree


@pytest.mark.real
def test_a_process_that_its_parent_has_not_asked_for_is_gone() -> None:
    """The removal of what it left was put off for as long as the parent lived."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process_exists(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wait_until(lambda: not process_exists(process.pid))
        wait_for_end(process.pid)
        assert Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize(("threads", "there"), [(1, False), (2, True)])
def test_a_process_with_a_thread_that_goes_on_has_not_ended(
    tmp_path: Path, threads: int, there: bool
) -> None:
    tree = Tree(tmp_path)
    tree.proc("7/status", "Name:\tpython\nState:\tZ (zombie)\n")
    for number in range(threads):
        tree.proc(f"7/task/{7 + number}/comm", "python\n")
    assert process_exists(7, tree.kernel) is there
    assert not process_exists(8, tree.kernel)
