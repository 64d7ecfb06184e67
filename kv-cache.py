#!/usr/bin/env python3
"""Drop-in command: `python3 kv-cache.py FLAGS` is `kvspill run FLAGS`, from a checkout or installed."""

import importlib.util
import sys
from pathlib import Path


def _find_kvspill() -> None:
    """Make the package beside this file importable, and say what is missing before anything else fails."""
    if sys.version_info < (3, 11):  # noqa: UP036 - no installer has checked the version of this file
        sys.exit("kvspill: error: Python 3.11 or newer is needed; run it with a newer python3")
    source = Path(__file__).resolve().parent / "src"
    if importlib.util.find_spec("kvspill") is None and source.is_dir():
        sys.path.insert(0, str(source))
    needed = {"kvspill": "kvspill", "pydantic": "pydantic", "yaml": "PyYAML", "numpy": "numpy"}
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        root = Path(__file__).resolve().parent
        sys.exit(f"kvspill: error: {', '.join(missing)} not installed; run: python3 -m pip install {root}")


if __name__ == "__main__":
    _find_kvspill()
    from functools import partial

    from kvspill.cli.main import guarded
    from kvspill.cli.run import main

    sys.exit(guarded(partial(main, prog="kv-cache.py"), sys.argv[1:]))
