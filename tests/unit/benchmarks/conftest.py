"""Lets the tests import the comparisons' helper modules, which are scripts' own and not installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
