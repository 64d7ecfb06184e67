"""A path that the user may not look into is refused in one line, whatever command it is given to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CAPABILITIES = "-dac_override,-dac_read_search"
AS_ANYBODY = ("setpriv", "--bounding-set", CAPABILITIES, "--inh-caps", CAPABILITIES)
"""Root sees everything, unless it gives that up."""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes root and setpriv"
)


@pytest.mark.parametrize(
    "command",
    [
        "compare no/sub",
        "report no/sub",
        "submission no/sub",
        "doctor no/sub",
        "simulate --device-profile no/sub",
        "suite --quick --simulate --output-dir no/sub",
    ],
)
def test_a_path_that_cannot_be_reached_is_one_line_and_2(tmp_path: Path, command: str) -> None:
    (tmp_path / "no").mkdir(mode=0o000)
    finished = subprocess.run(
        [*AS_ANYBODY, sys.executable, "-m", "kvspill", *command.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    if "setpriv:" in finished.stderr:
        pytest.skip(finished.stderr.strip())
    assert finished.returncode == 2, finished.stderr
    assert finished.stdout == ""
    assert finished.stderr.startswith("kvspill: error: no/sub")
    assert finished.stderr.endswith(
        ": cannot be reached (Permission denied); name another path or change its permissions\n"
    )
    assert finished.stderr.count("\n") == 1
