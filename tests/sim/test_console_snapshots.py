"""The console's text to the letter, short and verbose; `python -m sim.test_console_snapshots` writes it."""

import sys
from pathlib import Path

import pytest

from kvspill.report.console import render_summary
from kvspill.result.schema import Result
from sim.test_service_classes import simulated

FOLDER = Path(__file__).parent / "snapshots"
FILES = ("kvspill-results/20260101-120000.json",)
LOADS = {
    "met": {"num_users": 4, "arrival": "closed", "model": "tiny-1b", "device_profile": "nvme-gen5"},
    "missed": {"num_users": 20, "arrival": "closed", "device_profile": "nvme-gen4"},
    "overloaded": {"num_users": 20, "arrival": "open", "duration": 60.0, "device_profile": "nvme-gen4"},
    "dram": {
        "num_users": 20,
        "arrival": "open",
        "duration": 60.0,
        "device_profile": "nvme-gen4",
        "cpu_mem_gb": 4.0,
    },
    "memory": {
        "num_users": 10,
        "arrival": "closed",
        "device_profile": "nvme-gen4",
        "storage_tier": "off",
        "cpu_mem_gb": 8.0,
    },
    "search": {
        "num_users": 24,
        "max_users": 24,
        "duration": 900.0,
        "device_profile": "nvme-gen4",
        "enable_autoscaling": True,
        "autoscaler_mode": "slo",
        "slo_target_ms": 9000.0,
    },
}
SCREEN_LINES = 35


def text_of(name: str, verbose: bool) -> str:
    result: Result = simulated(**LOADS[name])
    return render_summary(result, FILES, verbose=verbose)


@pytest.mark.parametrize("verbose", [False, True], ids=["short", "verbose"])
@pytest.mark.parametrize("name", LOADS)
def test_the_summary_is_to_the_letter_what_it_was(name: str, verbose: bool) -> None:
    kept = FOLDER / f"{name}-{'verbose' if verbose else 'short'}.txt"
    assert text_of(name, verbose) == kept.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LOADS)
def test_the_short_form_fits_on_one_screen_and_begins_with_the_verdict(name: str) -> None:
    lines = (FOLDER / f"{name}-short.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= SCREEN_LINES
    assert lines[0].startswith(("YES", "NO", "FOUND"))
    assert max(map(len, lines)) <= 80
    assert lines[-1].strip() == FILES[0]


if __name__ == "__main__":
    for each in LOADS:
        for verbose_too in (False, True):
            path = FOLDER / f"{each}-{'verbose' if verbose_too else 'short'}.txt"
            path.write_text(text_of(each, verbose_too), encoding="utf-8")
            sys.stdout.write(f"{path.name}\n")
