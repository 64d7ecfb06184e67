"""Counts the inputs that were tried, so that the number can be stated."""

from collections import Counter
from typing import Any

import pytest

_KEY = pytest.StashKey[Counter[str]]()


@pytest.fixture
def tally(request: Any) -> Any:
    """Inputs tried by kind."""
    return request.config.stash.setdefault(_KEY, Counter())


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = config.stash.get(_KEY, Counter())
    if counts:
        terminalreporter.write_line(f"fuzz inputs tried: {counts.total():,}")
        for name, count in sorted(counts.items()):
            terminalreporter.write_line(f"  {name}: {count:,}")
