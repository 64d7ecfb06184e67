"""One line for every wrong value: where it was given, what it is, what is wrong and what to give instead."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kvspill.config import Config
from kvspill.config.fields import Choices, ZeroIsNone, alternatives
from kvspill.texts import hint, listed, near

Location = tuple[int | str, ...]


def shown(value: object) -> str:
    """A value for an error message: short and on one line."""
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, date):
        text = str(value)
    if isinstance(value, bool):
        text = text.lower()
    if not text or not text.isprintable():
        text = ascii(text)
    return text if len(text) <= 80 else text[:77] + "..."


def problem(error: ErrorDetails, location: Location) -> str:
    """What is wrong with a value and what to give instead."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("model_type", "dict_type"):
        return no_mapping(error["input"])
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"out of range; {_remedy(location)}"
    if kind == "literal_error":
        return unknown_choice(error["input"], choices(location))
    if kind == "extra_forbidden":
        return _unknown_key(location)
    if kind == "multiple_of":
        return f"not a multiple of {context.get('multiple_of')}; give whole blocks, such as 64k, 1MiB or 4MiB"
    if kind == "value_error":
        return str(context.get("error", error["msg"])).replace("\n", " ")
    if kind == "too_short":
        return f"too few entries; give {context['min_length']} or more"
    if kind == "too_long":
        most = context["max_length"]
        remedy = "exactly two numbers as [low, high]" if most == _PAIR else f"at most {most}"
        return f"too many entries; give {remedy}"
    if kind == "string_too_long":
        return f"too long; give at most {context['max_length']} characters"
    if kind.startswith("int"):
        return f"not a whole number; {_remedy(location)}"
    if kind.startswith("float"):
        return f"not a number; {_remedy(location)}"
    if kind.startswith("finite"):
        return f"not a finite number; {_remedy(location)}"
    return error["msg"][:1].lower() + error["msg"][1:].replace("\n", " ") + "; correct it"


_PAIR = 2
"""No list of the configuration but those of two bounds ends there."""
_PLAIN: Mapping[str, str] = {
    "missing": "missing; give it a value",
    "bool_parsing": "neither true nor false; write true or false",
    "bool_type": "neither true nor false; write true or false",
    "string_type": "not a text; put it in quotes",
    "string_too_short": "empty; give it a value",
    "string_unicode": "not valid UTF-8; correct it",
    "tuple_type": "not a list; write it as [a, b]",
}


def no_mapping(value: object) -> str:
    """What to say of a value where keys should be."""
    if isinstance(value, list):
        return "give names with settings, not a list"
    return "has no keys below it; indent them under it"


def unknown_choice(value: object, known: Sequence[str]) -> str:
    """What to say of a word that is none of the known ones."""
    return f"unknown; {did_you_mean(value, known)}choose {listed(known, 'or')}"


def did_you_mean(value: object, known: Sequence[str]) -> str:
    """The question, with a blank behind it; empty where no known word is near."""
    found = near(str(value), known)
    return f"did you mean {found[0]}? " if found else ""


def unknown_key(key: str, known: Sequence[str]) -> str:
    """What to say of a key that is none of those that may stand at its place."""
    return "unknown key; " + hint(key, known, f"known here: {', '.join(known)}")


def _unknown_key(location: Location) -> str:
    known = sorted({name for kind in _kinds_at(location[:-1]) for name in _keys(kind)})
    return unknown_key(str(location[-1]), known)


def choices(location: Location) -> tuple[str, ...]:
    """The words that a field may hold, or none where it holds something else."""
    found = [get_args(kind) for kind in _kinds_at(location) if get_origin(kind) is Literal]
    found += [note.words for note in _bounds_at(location) if isinstance(note, Choices)]
    return tuple(str(word) for words in found for word in words)


def _remedy(location: Location) -> str:
    return range_text(location) or "correct it"


_SECONDS = (
    *("duration", "warmup", "max_stall", "ranks_timeout"),
    *("autoscaler_interval", "autoscaler_stage"),
)


def unit_of(name: str) -> str:
    """The unit of a setting; empty where it has none or says it elsewhere."""
    if name.endswith("_gb"):
        return "GiB"
    if name.endswith("_ms"):
        return "ms"
    return "seconds" if name in _SECONDS else ""


def range_text(location: Location) -> str:
    """The range of a number in words, such as "give 1 to 1,000,000"."""
    unit = f" {unit_of(str(location[-1]))}".rstrip() if location else ""
    bounds = list(_bounds_at(location))
    lows = [bound.ge for bound in bounds if getattr(bound, "ge", None) is not None]
    above = [bound.gt for bound in bounds if getattr(bound, "gt", None) is not None]
    highs = [bound.le for bound in bounds if getattr(bound, "le", None) is not None]
    below = [bound.lt for bound in bounds if getattr(bound, "lt", None) is not None]
    zero = ", or 0 for the default" if ZeroIsNone in bounds else ""
    if above:
        most = f", at most {_number(min(highs))}" if highs else ""
        most = f" and less than {_number(min(below))}" if below else most
        return f"give more than {_number(max(above))}{most}{unit}{zero}"
    if lows and highs:
        return f"give {_number(max(lows))} to {_number(min(highs))}{unit}{zero}"
    return f"give {_number(max(lows))}{unit} or more" if lows else "give a number"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"


def _step(annotation: Any, part: int | str) -> Iterator[Any]:
    for kind in alternatives(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if part in kind.model_fields:
                info = kind.model_fields[str(part)]
                yield Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
        elif get_origin(kind) is dict:
            yield get_args(kind)[1]
        elif get_origin(kind) is tuple:
            arguments = get_args(kind)
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                yield arguments[0]
            elif isinstance(part, int) and part < len(arguments):
                yield arguments[part]


def _annotations_at(location: Location) -> list[Any]:
    found: list[Any] = [Config]
    for part in location:
        found = [below for annotation in found for below in _step(annotation, part)]
    return found


def _kinds_at(location: Location) -> list[Any]:
    return [kind for annotation in _annotations_at(location) for kind in alternatives(annotation)]


def _bounds_at(location: Location) -> Iterator[Any]:
    def inside(annotation: Any) -> Iterator[Any]:
        if get_origin(annotation) is Annotated:
            for note in get_args(annotation)[1:]:
                yield from note.metadata if isinstance(note, FieldInfo) else (note,)
        for part in get_args(annotation):
            if get_origin(part) is not None:
                yield from inside(part)

    for annotation in _annotations_at(location):
        yield from inside(annotation)


def _keys(kind: Any) -> Iterator[str]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from kind.model_fields
