"""Finds the helpers in C, where they were built from the sources that lie here."""

import importlib
from typing import Any


def compiled(name: str, version: int) -> Any:
    """The helper of that name; None where it was not built, or from other sources.

    That is a checkout which was updated and not installed again.
    """
    try:
        module = importlib.import_module(f"kvspill.storage.{name}")
    except ImportError:
        return None
    return module if getattr(module, "VERSION", 0) == version else None
