"""The table of errors: what counts as off, and what it takes to pass."""

import pytest

from lib.cases import BARS, Case
from prediction import Found, arguments, show, show_knee, speeds_of


def case(**predicted: float) -> Case:
    measured = dict.fromkeys(BARS, 100.0) | {"hit rate": 0.9}
    names = {name.replace("_", " "): value for name, value in predicted.items()}
    return Case((400.0, 400.0), "a load", measured | names, [measured])


def test_an_error_is_relative_and_that_of_the_hit_rate_in_points() -> None:
    one = case(tokens_s=0.0, read_p50=108.0, hit_rate=0.905)
    assert one.error("read p50") == pytest.approx(0.08)
    assert one.error("hit rate") == pytest.approx(0.005)


def test_twenty_of_twenty_cells_within_their_bars_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(Found([case() for _ in range(3)], [("400-400 MiB/s", 0.01)]))
    assert "100.0% of 24 cells within their bars: PASS" in capsys.readouterr().out


def test_what_is_off_is_named_and_too_much_of_it_misses(capsys: pytest.CaptureFixture[str]) -> None:
    assert not show(Found([case(read_p95=120.0), case()], [("400-400 MiB/s", 0.01)]))
    text = capsys.readouterr().out
    assert "MISS" in text
    assert "a load: read p95 off by +20.0% (120 predicted, 100 measured)" in text


def test_what_is_off_is_held_against_its_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = case(read_p95=120.0)
    one.intervals = {"read p95": (80.0, 150.0)}
    show(Found([one], []))
    assert "100 measured, inside its interval of 80 to 150)" in capsys.readouterr().out


def test_what_few_operations_say_is_a_miss_and_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    few = case(read_p95=300.0)
    few.counts = {"requests": 400, "storage reads": 7}
    assert not show(Found([few, case()], []))
    text = capsys.readouterr().out
    assert "93.8% of 16 cells within their bars: MISS" in text
    assert "100.0% of the 13 cells of at least 50 operations; 3 are chance" in text
    assert "100 measured, of fewer than 50 storage reads)" in text


def test_calibrations_that_differ_miss(capsys: pytest.CaptureFixture[str]) -> None:
    assert not show(Found([case()], [("400-400 MiB/s", 0.05)]))
    assert "two calibrations 5.0% apart: MISS (<= 3%)" in capsys.readouterr().out


def test_speeds_of_reads_and_writes_may_differ() -> None:
    assert speeds_of("120,200:100") == [(120.0, 120.0), (200.0, 100.0)]


def test_on_a_bare_disk_the_spread_of_the_runs_is_allowed_too() -> None:
    runs = [dict.fromkeys(BARS, value) | {"hit rate": 0.9} for value in (90.0, 100.0, 110.0)]
    one = Case((0.0, 0.0), "a load", dict.fromkeys(BARS, 114.0) | {"hit rate": 0.9}, runs, raw=True)
    assert one.bar("requests/s") == pytest.approx(0.15)
    assert abs(one.error("requests/s")) <= one.bar("requests/s")


def test_the_prediction_stands_beside_what_another_run_would_have_predicted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = case(read_p95=104.0)
    again = one.measured[0] | {"read p95": 120.0}
    one.measured.append(again)
    assert one.repeated("read p95") == [False, False]
    assert one.alone("read p95") == [True, False]
    show(Found([one], []))
    text = capsys.readouterr().out
    assert "within these bars of 93.8% of their figures, another run of the same load of 87.5%" in text


def test_one_run_says_nothing_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    show(Found([case()], []))
    assert "another run" not in capsys.readouterr().out


def test_a_limit_must_be_near_what_the_search_found(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"device": "400-400 MiB/s", "target_ms": 400, "measured": 20, "measured_that_failed": 25}
    assert show_knee({**known, "predicted": 21})
    assert not show_knee({**known, "predicted": 24})
    assert not show_knee({**known, "predicted": 25})
    assert not show_knee({**known, "predicted": None})
    text = capsys.readouterr().out.splitlines()
    assert text[1].endswith("+20.0% no verdict: the search left that open (<= 10%)")
    assert text[2].endswith("+25.0% MISS (<= 10%)")


def test_a_short_table_can_still_be_told_more() -> None:
    args = arguments(["--short", "--speeds", "120,200:100", "."])
    assert (args.quick, args.duration, args.speeds) == (True, 20, "120,200:100")
