#!/usr/bin/env python3
"""Drop-in command: `python3 kv-cache.py FLAGS` is `kvspill run FLAGS`, from a checkout or installed."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
NEEDED = {
    "kvspill": "kvspill",
    "hdrh": "hdrhistogram",
    "numpy": "numpy",
    "pydantic": "pydantic",
    "rich": "rich",
    "scipy": "scipy",
    "yaml": "PyYAML",
}
"""What this command imports, by module, and the package that holds it."""
_RESTARTED = "KV_CACHE_PY_RESTARTED"


def _find_kvspill() -> None:
    """Make the package beside this file importable, and say what is missing before anything else fails."""
    too_old = sys.version_info < (3, 11)
    if importlib.util.find_spec("kvspill") is None and (ROOT / "src").is_dir():
        sys.path.insert(0, str(ROOT / "src"))
    if not too_old and importlib.util.find_spec("kvspill") is not None:
        from kvspill.cli.main import heed_signals

        heed_signals()
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if not too_old and not missing:
        return
    _restart_in_the_environment()
    if too_old:
        _leave("Python 3.11 or newer is needed; run it with a newer python3")
    venv = ROOT / ".venv"
    remedy = f"run: python3 -m venv {venv} && {venv}/bin/pip install -e {ROOT}"
    _leave(f"{', '.join(missing)} not installed for {sys.executable}; {remedy}")


def _restart_in_the_environment() -> None:
    """Go on in the environment that `make` made, where there is one; returns where that cannot help."""
    python = ROOT / ".venv" / "bin" / "python"
    if os.environ.pop(_RESTARTED, None) is None and os.access(python, os.X_OK):
        os.environ[_RESTARTED] = "1"
        try:
            os.execv(python, [str(python), __file__, *sys.argv[1:]])
        except OSError:
            return


def _leave(text: str) -> None:
    print(f"kvspill: error: {text}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    _find_kvspill()
    from functools import partial

    from kvspill.cli.main import as_program
    from kvspill.cli.run import main

    sys.exit(as_program(partial(main, prog="kv-cache.py")))
