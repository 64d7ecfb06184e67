"""What every declaration of a plug-in must keep, whatever its kind."""

import re
from typing import ClassVar

from kvspill.plugins import ABILITIES, Kind, Option, Plugin, lacking

_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_LINE_MAX = 100


class DeclarationSuite:
    """The part of each contract suite that looks at the declaration alone."""

    kind: ClassVar[Kind]
    plugin: Plugin
    """The plug-in under test: a class derived from the suite sets it."""

    def test_the_name_can_stand_in_a_flag(self) -> None:
        assert _NAME.fullmatch(self.plugin.name), f"{self.plugin.name!r}: lower-case words joined by '-'"

    def test_the_help_is_one_short_line(self) -> None:
        _check_help(self.plugin.help)

    def test_options_are_named_explained_and_accept_their_own_defaults(self) -> None:
        names = [option.name for option in self.plugin.options]
        assert len(set(names)) == len(names), "an option appears twice"
        for option in self.plugin.options:
            assert _NAME.fullmatch(option.name), f"{option.name!r}: lower-case words joined by '-'"
            _check_help(option.help)
            _check_default(option)

    def test_its_abilities_are_known(self) -> None:
        known = ABILITIES[self.kind]
        unknown = ", ".join(sorted(self.plugin.can - known))
        assert not unknown, f"can: {unknown}: unknown; this kind knows {', '.join(sorted(known))}"

    def test_readiness_is_none_or_a_reason(self) -> None:
        reason = self.plugin.ready()
        assert reason is None or reason.strip()


def check_complete(made: object, wanted: type) -> None:
    """Fail with a sentence where a method that the kind must have is not there."""
    missing = lacking(made, wanted)
    assert not missing, (
        f"{type(made).__name__} has no {', '.join(missing)}: docs/plugins.md says what a plug-in must have"
    )


def _check_help(text: str) -> None:
    assert text.strip() == text, f"{text!r}: blanks at its ends"
    assert text.isprintable(), f"{text!r}: more than one line"
    assert 0 < len(text) <= _LINE_MAX, f"{text!r}: 1 to {_LINE_MAX} characters"


def _check_default(option: Option) -> None:
    assert option.kind in (str, int, float, bool), f"{option.name}: kind is one of str, int, float and bool"
    if option.default is not None:
        assert option.parse(option.default) == option.default, f"{option.name}: refuses its own default"
