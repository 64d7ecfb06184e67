"""How a configuration field is declared: help, flag, group and the conversions of its values."""

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from kvspill.config.effects import NoEffect
from kvspill.plugins import Kind
from kvspill.records import MIB

KeyPath = tuple[str, ...]
"""Where a key stands in a YAML file."""

GROUPS: Final[Mapping[str, str]] = {
    "load": "Load: who asks and for how long",
    "model": "Model",
    "workload": "Workload: what is asked",
    "traces": "Conversations and traces: replay what was recorded",
    "generation": "Generation: the time a GPU would take",
    "tiers": "Tiers: where KV entries may live",
    "io": "I/O: how the storage tier is driven",
    "blocks": "Blocks: what engines do (--io-model prefix)",
    "autoscaling": "Limits: how much load is possible",
    "criteria": "Criteria: what counts as good enough",
    "output": "Output",
}
"""The sections of --help, in order."""


class Group(BaseModel):
    """Base of every part of the configuration: immutable, strict about keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # Python counts true as 1, but `num_users: true` is a mistake.
        words = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(word, bool) for word in words):
            kinds = set(numbers_in(cls.model_fields[str(info.field_name)].annotation))
            if kinds and bool not in kinds:
                raise PydanticCustomError("int_type" if int in kinds else "float_type", "a truth value")
        return value


def alternatives(annotation: Any) -> Iterator[Any]:
    """A type's alternatives, without Annotated and Union around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from alternatives(part)
    else:
        yield annotation


def numbers_in(annotation: Any) -> Iterator[type]:
    """Which of int, float and bool a field takes, alone or in a list."""
    for kind in alternatives(annotation):
        if kind in (int, float, bool):
            yield kind
        elif get_origin(kind) is tuple:
            for part in get_args(kind):
                yield from numbers_in(part)


@dataclass(frozen=True, slots=True)
class Choices:
    """Notes, as a Literal does, which words a text field may hold, where a folder lists them."""

    words: tuple[str, ...]


def opt(
    default: Any,
    help_text: str,
    *,
    group: str,
    alias_flags: tuple[str, ...] = (),
    metavar: str | None = None,
    advanced: bool = False,
    plugin: Kind | None = None,
    no_effect: tuple[NoEffect, ...] = (),
    **constraints: Any,
) -> Any:
    """A field that is also a flag. Its flag is the field's name in kebab-case.

    plugin: the kind of plug-in whose name it holds; {names} in the help stands for the names there are.
    no_effect: when it changes nothing, which is warned about where it was given.
    """
    extra: Any = {
        "group": group,
        "alias_flags": list(alias_flags),
        "metavar": metavar,
        "advanced": advanced,
        "plugin": plugin,
        "no_effect": no_effect,
    }
    return Field(default, description=help_text, json_schema_extra=extra, **constraints)


rare = partial(opt, advanced=True)
"""A flag that only --help-all shows."""


def yaml_only(default: Any, help_text: str, **constraints: Any) -> Any:
    """A field that YAML may set and that has no flag."""
    return Field(default, description=help_text, json_schema_extra={"yaml_only": True}, **constraints)


def internal(default: Any, help_text: str) -> Any:
    """A field that neither flags nor YAML may set: the loader fills it."""
    return Field(default, description=help_text, json_schema_extra={"internal": True})


def extra_of(info: FieldInfo) -> dict[str, Any]:
    """What `opt`, `yaml_only` or `internal` noted about a field."""
    extra = info.json_schema_extra
    return extra if isinstance(extra, dict) else {}


def is_flag(info: FieldInfo) -> bool:
    return "group" in extra_of(info)


def flag_of(name: str) -> str:
    """The flag of a field."""
    return "--" + name.replace("_", "-")


_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE | re.ASCII)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(value: object) -> object:
    """Bytes from 4096, "4MiB", "1M", "64k"; every unit is a power of 1024 (S6)."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("not a size; write it like 4MiB, 1M or 65536")
    digits, unit, _ = match.groups()
    if len(digits) > 18:
        raise ValueError("not a size that any machine has; write it like 4MiB, 1M or 65536")
    return int(digits) << _SHIFT[unit.lower()]


def _spell_on_off(value: object) -> object:
    # YAML reads a bare on, off, yes or no as a truth value.
    if value is True:
        return "on"
    if value is False:
        return "off"
    return value


def _spell_null(value: object) -> object:
    # YAML reads a bare null as nothing.
    return "null" if value is None else value


_ZERO = r"0+(\.0*)?"
_NOTHING = re.compile(rf"({_ZERO}|f|false|n|no|off)?", re.IGNORECASE)


def means_nothing(value: object) -> bool:
    """Whether a value, as flags, variables and files give it, stands for zero, false or none."""
    return not value or (isinstance(value, str) and _NOTHING.fullmatch(value.strip()) is not None)


def _zero_is_none(value: object) -> object:
    # The drop-in command's way to say "no limit" or "find out yourself".
    if value == 0 or (isinstance(value, str) and re.fullmatch(_ZERO, value.strip())):
        return None
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _check_path(value: str) -> str:
    if not value.strip():
        raise ValueError("empty; name a path")
    if len(value) > 4096:
        raise ValueError("longer than any path; name a shorter one")
    if "\0" in value:
        raise ValueError("contains a NUL character; name a path without it")
    return value


PluginName = Annotated[str, Field(min_length=1, max_length=100)]
"""The name of a plug-in; which there are is not known here."""
OnOff = BeforeValidator(_spell_on_off)
NullWord = BeforeValidator(_spell_null)
ZeroIsNone = BeforeValidator(_zero_is_none)
Listed = BeforeValidator(_listed)
PathText = Annotated[
    str, BeforeValidator(lambda value: _check_path(value) if isinstance(value, str) else value)
]
Size = Annotated[int, BeforeValidator(parse_size)]

MAX_GB: Final = 1_048_576
Gb = Annotated[float, Field(ge=0, le=MAX_GB)]
PositiveGb = Annotated[float, Field(gt=0, le=MAX_GB)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Speed = Annotated[float, Field(ge=1e-6, le=1e12)]
"""Of a load: a slower one asks once in weeks, and its times have no end in nanoseconds."""
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]

DEFAULT_IO_SIZE: Final = 4 * MIB
IO_SIZE_MAX: Final = 256 * MIB
