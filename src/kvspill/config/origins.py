"""Who gave a setting, and the variables of the environment that can: errors name these instead of a flag."""

import contextlib
import re
from collections.abc import Iterator, Mapping

from kvspill.config import Config
from kvspill.config.fields import extra_of, flag_of
from kvspill.errors import UsageError

ENVIRONMENT_PREFIX = "KVSPILL_"
OF_COMMAND = "default of the command"
"""The source of a value that nobody gave: the command has a default of its own."""
_VALUE = r"( (?=\d|(?:on|off)(?:[,;]|$)|\S+(?::| contradicts)))?"
"""The blank between a flag and its value; other words that follow a flag are no value."""


def variables_of(field: str) -> list[str]:
    """The variables that give a field, that of its own name last."""
    flags = (*reversed(extra_of(Config.model_fields[field])["alias_flags"]), flag_of(field))
    return [variable_of(flag) for flag in flags]


def variable_of(flag: str) -> str:
    """The variable that gives what a flag gives."""
    return ENVIRONMENT_PREFIX + flag[2:].replace("-", "_").upper()


def was_given(config: Config, name: str) -> bool:
    """Whether somebody gave that setting, be it with the value that it has anyway."""
    return config.sources.get(name, OF_COMMAND) != OF_COMMAND


def by_hand(config: Config, name: str) -> str:
    """The flag or variable that gave a setting another value than the default; empty where none did.

    A file may list every setting, and a default that is said aloud changes nothing.
    """
    label = config.sources.get(name, "")
    info = Config.model_fields.get(name)
    usual = info is not None and getattr(config, name) == info.default
    return label if label.startswith(("--", ENVIRONMENT_PREFIX)) and not usual else ""


@contextlib.contextmanager
def naming_variables(sources: Mapping[str, str]) -> Iterator[None]:
    """An error about a setting that a variable gave names the variable: nobody typed its flag."""
    try:
        yield
    except UsageError as error:
        text = str(error)
        for field, label in sources.items():
            if field in Config.model_fields and label.startswith(ENVIRONMENT_PREFIX):
                text = _renamed(text, field, label)
        error.args = (text,)
        raise


def _renamed(text: str, field: str, variable: str) -> str:
    if variable not in variables_of(field):
        # The backend that an address has chosen is no variable's value.
        return text
    flag = rf"{re.escape(flag_of(field))}(?![\w-]){_VALUE}"
    return re.sub(flag, lambda found: f"{variable}=" if found[1] else variable, text)
