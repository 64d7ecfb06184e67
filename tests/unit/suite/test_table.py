"""The comparison table: every row is there, labelled as what it is."""

import io
import re
from dataclasses import replace

import pytest

from kvspill.suite.manifest import RowStatus, new_manifest
from kvspill.suite.scenario import select
from kvspill.suite.table import WIDTH, print_report
from unit.suite.test_advice import row, tier


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def report(simulated: bool = False, stream: io.StringIO | None = None) -> str:
    names = ["gpu-only", "storage-only", "autoscale"]
    manifest = new_manifest("SUITE", select(names), (), simulated=simulated, quick=True)
    manifest = manifest.with_row(0, status=RowStatus.DONE)
    manifest = manifest.with_row(1, status=RowStatus.DONE)
    manifest = manifest.with_row(
        2, status=RowStatus.UNAVAILABLE, reason="needs --x: not available in this version"
    )
    latency = {"mean": 1.0, "p50": 1.0, "p95": 1500.0}
    found = {
        "gpu-only": row("gpu-only", tiers={"gpu": tier(modelled=True)}),
        "storage-only": row("storage-only", completed=12),
    }
    found = {
        name: replace(item, end_to_end_ms=latency, queue_ms=latency, storage_io_ms=latency)
        for name, item in found.items()
    }
    if simulated:
        found = {name: replace(item, simulated=True) for name, item in found.items()}
    stream = stream or io.StringIO()
    print_report(manifest, found, ["buy DRAM [now]", "more " * 30], stream)
    return stream.getvalue()


def test_gpu_rows_are_labelled_modelled_in_both_tables() -> None:
    text = report()
    assert text.count("gpu-only (GPU modelled)") == 2
    assert "1.00/0.10*" in text
    assert "* modelled: times come from a device model" in text


def test_a_row_that_did_not_run_keeps_its_line_and_has_a_reason() -> None:
    text = report()
    assert "autoscale" in text
    assert "not available" in text
    assert "  autoscale: needs --x: not available in this version\n" in text


def test_few_requests_are_marked_as_rough() -> None:
    text = report()
    assert "~1.500 s" in text
    assert "~ fewer than 100 requests" in text


def test_plain_text_fits_its_width_and_has_no_colours() -> None:
    text = report()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "\x1b" not in text
    assert "- buy DRAM [now]" in text


def test_everything_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    text = re.sub("\x1b\\[[0-9;]*m", "", report(stream=Terminal()))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.count("gpu-only*") == 3
    assert "* rows: gpu-only (GPU modelled)." in text
    assert "1.00/0.10*" in text
    assert "\u2026" not in text


def test_a_simulated_suite_says_so_in_its_head() -> None:
    text = report(simulated=True)
    assert "SUITE - SIMULATED, no byte moved" in text
    assert "WHAT THIS MEANS FOR THE MODELLED DEVICES" in text
    assert "FOR THIS MACHINE" in report()


def test_a_sentence_of_advice_that_needs_two_lines_is_not_read_as_a_row() -> None:
    assert re.search(r"^- more (more )+more\n  more", report(), re.MULTILINE)
