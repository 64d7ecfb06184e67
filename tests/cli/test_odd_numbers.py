"""Odd numbers in every flag that the parsers have: refused in one line with exit code 2, or taken."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fuzz.targets import command
from kvspill.cli.main import COMMANDS, main
from kvspill.cli.options import Parser, config_parser, parse_config
from kvspill.errors import KvspillError
from unit.result.sample import result

NOT_FINITE = ("nan", "inf", "-inf", "1e400")
ODD = (*NOT_FINITE, "-1", "-0", "0", "1e-400", "9" * 30, "9" * 5000, "0x10", "1_0", "\u0663", "", " ")
WORDS: dict[str, tuple[str, ...]] = {
    "plan": ("--users", "4", "--option", "nvme-gen4", "--quick"),
    "curve": ("--trace", "mooncake:sample"),
    "validate": ("lmcache",),
    "suite": ("--simulate", "--dry-run"),
    "suite mlperf": ("--option", "1", "--simulate"),
    "suite backends": ("--target", "a", "--target", "b"),
    "export": ("trace", "none.parquet", "-o", "out.jsonl"),
    "compare": ("r.json", "--", "r.json"),
    "report": ("r.json", "-o", "out.html"),
    "clean": (".",),
}
"""What each needs besides, to come to its numbers; commands without an entry need nothing."""
WORK = (
    "kvspill.plan.planning.plan",
    "kvspill.curve.accesses.collect",
    "kvspill.plan.validate.validate.validate",
    "kvspill.suite.campaign.run_folder",
    "kvspill.doctor.doctor.examine",
    "kvspill.report.html.page.page_of",
)
EVERY_COMMAND = (*COMMANDS, "suite mlperf", "suite backends")


class Taken(KvspillError):  # noqa: N818 - names what happened
    """The numbers were taken: the work itself is left out."""

    exit_code = 0


def no_work(*_given: Any, **_named: Any) -> Any:
    raise Taken("taken")


def parsers_of(name: str) -> list[Parser]:
    """Every parser that a command makes."""
    made: list[Parser] = []
    init = Parser.__init__

    def noted(self: Parser, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        made.append(self)

    with mock.patch.object(Parser, "__init__", noted), suppress(SystemExit):
        main([*name.split(), "--help"])
    return made


def flags_of(parser: Parser) -> Iterator[str]:
    """The flags that take a value."""
    for action in parser._actions:
        if action.option_strings and action.nargs != 0:
            yield max(action.option_strings, key=len)


OWN = [
    pytest.param(name, parser, id=f"{name} {place}" if place else name)
    for name in EVERY_COMMAND
    for place, parser in enumerate(parsers_of(name))
    if name not in ("run", "simulate", "quick", "can", "calibrate") and "--num-users" not in flags_of(parser)
]
"""Parsers of flags that are no settings of a run; those have one test for all commands."""
NUMBERS = ("N", "GIB", "GIB,…", "SECONDS", "S", "SHARE", "PERCENT", "PID")


def values(few: bool) -> tuple[str, ...]:
    return NOT_FINITE if few else ODD


def is_number(parser: Parser, flag: str) -> bool:
    return parser._option_string_actions[flag].metavar in NUMBERS


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "r.json").write_text(json.dumps(result()))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path


def swept(name: str, parser: Parser, place: Path, few: bool) -> None:
    wrong = []
    with ExitStack() as stack:
        for work in WORK:
            stack.enter_context(mock.patch(work, no_work))
        for flag in flags_of(parser):
            for value in values(few):
                line = [*name.split(), *WORDS.get(name, ()), f"{flag}={value}"]
                try:
                    code = command(line, place)
                except AssertionError as error:
                    wrong.append(f"{flag} {value[:20]}: {error}")
                    continue
                if code != 2 and value in NOT_FINITE and is_number(parser, flag):
                    wrong.append(f"{flag} {value}: taken (exit code {code})")
    assert wrong == []


@pytest.mark.parametrize(("name", "parser"), OWN)
def test_a_number_that_is_none_is_refused_by_each_flag(name: str, parser: Parser, place: Path) -> None:
    swept(name, parser, place, few=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parser"), OWN)
def test_an_odd_number_in_a_flag_is_refused_or_taken_in_one_line(
    name: str, parser: Parser, place: Path
) -> None:
    swept(name, parser, place, few=False)


def test_an_odd_number_in_a_setting_is_refused_in_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of a run are flags of eight commands, and checked in one place."""
    monkeypatch.chdir(place)
    parser = config_parser("kvspill run", "", "")
    wrong = []
    for flag in flags_of(parser):
        for value in ODD:
            try:
                parse_config(parser, [f"{flag}={value}"], {})
            except KvspillError as error:
                if "\n" in str(error) or error.exit_code != 2:
                    wrong.append(f"{flag} {value[:20]}: {error}")
                continue
            except Exception as error:
                wrong.append(f"{flag} {value[:20]}: {type(error).__name__} {error}")
                continue
            if value in NOT_FINITE and is_number(parser, flag):
                wrong.append(f"{flag} {value}: taken")
    assert wrong == []
    assert sorted(os.listdir(place)) == ["a", "b", "r.json"]
