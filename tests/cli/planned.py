"""A plan of few simulations: what it is asked with, and what it writes."""

import json
from pathlib import Path
from typing import Any

from kvspill.cli.main import main
from unit.plan.made import calibrated

PROFILE = calibrated("read_gib_per_sec: 2, write_gib_per_sec: 2")
LOAD = "--model tiny-1b --tensor-parallel 4 --slo-target-ms 200 --generation-mode fast --duration 8 --quiet"


def plan(tmp_path: Path, words: str, name: str = "plan.json") -> tuple[int, dict[str, Any]]:
    output = tmp_path / name
    code = main(["plan", *LOAD.split(), *words.split(), "--output", str(output)])
    found: dict[str, Any] = json.loads(output.read_text())
    return code, found
