"""Whether the trials of a submission measured one and the same workload: a mixture has no figures."""

import json
from collections.abc import Collection, Iterator, Sequence

from kvspill.result.schema import Result
from kvspill.suite.places import Places, Spot

_NOT_COMPARED = frozenset({"seed", "packages", "personas"})
"""Ranks have seeds of their own; personas are compared under the name of their workload."""
_SHOWN_CHARACTERS_MAX = 60


def mixture(trials: Sequence[Sequence[Result]], free: Collection[str], places: Places) -> list[str]:
    """The settings, but for the free ones, that differ between results, each with its values."""
    found: dict[str, dict[str, list[Spot]]] = {}
    for spot, result in places.each(trials):
        for name, value in _settings(result, free):
            found.setdefault(name, {}).setdefault(value, []).append(spot)
    return [
        f"{name}: {', '.join(f'{_shown(value)} in {places.where(at)}' for value, at in values.items())}"
        for name, values in found.items()
        if len(values) > 1
    ]


def workload_text(result: Result) -> str:
    """Which workload a result is of, in a phrase."""
    personas = result.workload.get("personas")
    return str(result.workload.get("kind", "unknown")) if personas is None else f"personas {personas}"


def _settings(result: Result, free: Collection[str]) -> Iterator[tuple[str, str]]:
    yield "workload", f"{workload_text(result)}\n{json.dumps(result.config.get('personas'), sort_keys=True)}"
    for name, value in result.config.items():
        if name not in free and name not in _NOT_COMPARED:
            yield name, json.dumps(value, sort_keys=True).strip('"')


def _shown(value: str) -> str:
    line = value.partition("\n")[0]
    return line if len(line) <= _SHOWN_CHARACTERS_MAX else f"{line[:_SHOWN_CHARACTERS_MAX]}…"
