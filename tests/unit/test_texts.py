"""Claims about text from elsewhere: what a terminal, a page or a spreadsheet would obey never reaches it."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from kvspill.texts import (
    cell,
    duration,
    make_console,
    one_line,
    plain,
    rough_size_text,
    significant,
    size_text,
    speed_text,
    target_time,
)

TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))


def obeyed(text: str) -> set[str]:
    """Characters that do more than stand there."""
    return {character for character in text if character in TURNS or character in CONTROLS}


@given(st.text(st.characters() | st.sampled_from(TURNS + CONTROLS)))
def test_nothing_that_is_shown_can_do_anything(text: str) -> None:
    assert obeyed(one_line(text)) == set()
    assert obeyed(plain(text)) <= {"\n", "\t"}
    assert len(one_line(text).splitlines()) <= 1
    one_line(text).encode()


@pytest.mark.parametrize("text", ["llama3.1-8b", "é 漢字 עברית", "a  b", "50 %", "C:\\x"])
def test_ordinary_names_stay_as_they_are(text: str) -> None:
    assert one_line(text) == plain(text) == cell(text) == text


@pytest.mark.parametrize(
    "start", ["", "\n", "\t", "\r", " ", "\r\n", "\u202e", "\0", "\ufeff", "\u200b", "\xa0", "\n\n"]
)
@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff0b"])
def test_no_cell_begins_a_formula(start: str, sign: str) -> None:
    assert cell(f"{start}{sign}cmd|' /C calc'!A0").startswith("'")


@given(st.text(st.characters() | st.sampled_from(TURNS + CONTROLS + "=+-@")))
def test_a_cell_is_no_formula_whatever_stands_before_it(text: str) -> None:
    harmless = cell(text)
    assert obeyed(harmless) <= {"\n", "\t"}
    assert not harmless.strip().startswith(("=", "+", "-", "@"))


def test_a_console_sends_only_its_own_escape_sequences() -> None:
    hostile = f"\x1b]0;title\x07\x1b[2J{TURNS}x"
    text = io.StringIO()
    console = make_console(text, force_terminal=True, width=80)
    table = Table(hostile)
    table.add_row(Text(hostile, style="bold"))
    console.print(table)
    console.print(hostile, markup=False)
    shown = text.getvalue()
    assert "\x1b[1m" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]" not in shown
    assert obeyed(shown) <= {"\n", "\x1b"}


def test_a_size_has_the_unit_that_shows_it() -> None:
    shown = [size_text(nbytes) for nbytes in (512, 4096, 65_536, 1_572_864, 192 << 20, 3 << 29)]
    assert shown == ["512 B", "4 KiB", "64 KiB", "1.5 MiB", "192 MiB", "1.50 GiB"]


def test_a_bandwidth_has_the_unit_in_which_its_digits_show() -> None:
    shown = [speed_text(mib / 1024) for mib in (0, 0.5, 1.5, 25, 199.5, 1140)]
    assert shown == ["0 B/s", "512 KiB/s", "1.5 MiB/s", "25 MiB/s", "200 MiB/s", "1.11 GiB/s"]


def test_two_bandwidths_side_by_side_have_the_unit_of_the_larger() -> None:
    slow = [speed_text(gib, 5.51) for gib in (0.683, 0.0244, 0.001, 0, 5.51)]
    assert slow == ["0.68 GiB/s", "0.024 GiB/s", "1.02 MiB/s", "0 B/s", "5.51 GiB/s"]
    assert [speed_text(0.5, 0.25, None), speed_text(0.25, 0.5)] == ["512 MiB/s", "256 MiB/s"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(516_469.82, "516,500"), (2986.114, "2,986"), (9.9996, "10.00"), (0.0123456, "0.0123"), (0.0, "0")],
)
def test_a_percentile_has_no_more_digits_than_its_histogram(value: float, shown: str) -> None:
    assert significant(value) == shown


def test_a_time_has_the_same_digits_in_seconds_as_in_milliseconds() -> None:
    shown = [duration(value) for value in (None, 0, 0.0004, 0.125, 223.87, 999.96, 7471.2, 96_842.0)]
    assert shown == ["-", "0 ms", "0.0004 ms", "0.1250 ms", "223.9 ms", "1.000 s", "7.471 s", "96.84 s"]


def test_a_target_is_written_as_it_was_given() -> None:
    shown = [target_time(target_ms) for target_ms in (0.5, 50, 300.25, 1000, 1500, 3_600_000)]
    assert shown == ["0.5 ms", "50 ms", "300.25 ms", "1 s", "1.5 s", "3,600 s"]


@pytest.mark.parametrize(
    ("gib", "text"), [(1077.59, "1,080 GiB"), (10, "10.0 GiB"), (3, "3.00 GiB"), (0.5, "512 MiB")]
)
def test_a_bound_that_is_known_roughly_has_three_digits(gib: float, text: str) -> None:
    assert rough_size_text(gib * 2**30) == text
