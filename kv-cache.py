#!/usr/bin/env python3
"""Drop-in command: `python3 kv-cache.py FLAGS` is `kvspill run FLAGS`, from a checkout or installed."""

import os
import sys

ROOT = os.path.dirname(os.path.realpath(__file__))
TOO_OLD = sys.version_info < (3, 11)
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


def _heed_signals() -> None:
    """First of all: the imports that follow take a while."""
    # Where kvspill is not installed, it is beside this file.
    sys.path.append(os.path.join(ROOT, "src"))
    try:
        from kvspill.cli.start import heed_signals
    except ImportError:
        # It is missing, which is said next.
        return
    heed_signals()


def _check_packages() -> None:
    """Say what is missing before anything else fails."""
    import importlib.util

    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if not TOO_OLD and not missing:
        return
    _restart_in_the_environment()
    if TOO_OLD:
        _leave("Python 3.11 or newer is needed; run it with a newer python3")
    venv = os.path.join(ROOT, ".venv")
    remedy = f"run: python3 -m venv {venv} && {venv}/bin/pip install -e {ROOT}"
    _leave(f"{', '.join(missing)} not installed for {sys.executable}; {remedy}")


def _restart_in_the_environment() -> None:
    """Go on in the environment that `make` made, where there is one; returns where that cannot help."""
    python = os.path.join(ROOT, ".venv", "bin", "python")
    if os.environ.pop(_RESTARTED, None) is None and os.access(python, os.X_OK):
        os.environ[_RESTARTED] = "1"
        try:
            os.execv(python, [python, __file__, *sys.argv[1:]])
        except OSError:
            return


def _leave(text: str) -> None:
    print(f"kvspill: error: {text}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    if not TOO_OLD:
        _heed_signals()
    _check_packages()
    from functools import partial

    from kvspill.cli.main import as_program
    from kvspill.cli.run import main

    sys.exit(as_program(partial(main, prog="kv-cache.py")))
