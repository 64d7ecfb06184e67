"""A few seconds of coverage-guided fuzzing of each parser, where atheris is installed."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atheris", reason="atheris is not installed")

SECONDS = int(os.environ.get("KVSPILL_ATHERIS_SECONDS", "1"))
PARSERS = (
    "yaml",
    "profile",
    "scenario",
    "result",
    "table",
    "manifest",
    "azure",
    "bailian",
    "burstgpt",
    "mooncake",
    "sharegpt",
    "weka",
)
HARNESS = Path(__file__).with_name("run_atheris.py")


@pytest.mark.real
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_survives_guided_fuzzing(name: Any, tally: Any, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HARNESS), name, "--seconds", str(SECONDS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tried = re.search(r"Done (\d+) runs", done.stderr)
    assert tried is not None, done.stderr[-3000:]
    tally[f"{name}, guided"] += int(tried[1])
