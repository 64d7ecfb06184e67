"""What the tests of the page share: a browser, and a result."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from real.browsing import CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    with playwright.sync_playwright() as driver:
        # Without a sandbox of its own, because tests may run as root in a container.
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def ten_minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of 600 simulated seconds."""
    path = tmp_path_factory.mktemp("results") / "ten-minutes.json"
    flags = ["--num-users", "10", "--duration", "600", "--cpu-mem-gb", "2", "--storage-capacity-gb", "8"]
    # A process of its own: the browser's driver keeps an event loop in this one.
    command = [sys.executable, "-m", "kvspill.cli.main", "simulate", *flags, "--quiet", "--output", str(path)]
    subprocess.run(command, check=True)
    return path
