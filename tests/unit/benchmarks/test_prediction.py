"""The table of errors: what counts as off, and what it takes to pass."""

import pytest

from prediction import BARS, Case, show, speeds_of


def case(**predicted: float) -> Case:
    measured = dict.fromkeys(BARS, 100.0) | {"hit rate": 0.9}
    names = {name.replace("_", " "): value for name, value in predicted.items()}
    return Case((400.0, 400.0), "a load", measured | names, [measured])


def test_an_error_is_relative_and_that_of_the_hit_rate_in_points() -> None:
    one = case(tokens_s=0.0, read_p50=108.0, hit_rate=0.905)
    assert one.error("read p50") == pytest.approx(0.08)
    assert one.error("hit rate") == pytest.approx(0.005)


def test_twenty_of_twenty_cells_within_their_bars_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([case() for _ in range(3)], [("400-400", 0.01)])
    assert "100.0% of 24 cells within their bars: PASS" in capsys.readouterr().out


def test_what_is_off_is_named_and_too_much_of_it_misses(capsys: pytest.CaptureFixture[str]) -> None:
    assert not show([case(read_p95=120.0), case()], [("400-400", 0.01)])
    text = capsys.readouterr().out
    assert "MISS" in text
    assert "a load: read p95 off by +20.0% (120 predicted, 100 measured)" in text


def test_calibrations_that_differ_miss(capsys: pytest.CaptureFixture[str]) -> None:
    assert not show([case()], [("400-400", 0.05)])
    assert "two calibrations 5.0% apart: MISS (<= 3%)" in capsys.readouterr().out


def test_speeds_of_reads_and_writes_may_differ() -> None:
    assert speeds_of("120,200:100") == [(120.0, 120.0), (200.0, 100.0)]
