"""A model that is given by its published config.json: it becomes one of the user's own models."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError, reason_of
from kvspill.inputs import CONFIGURATION, TooMuch, parse_json, read_input

_FLAG = "--model-config"


def with_model_config(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The given values, with the model of the file among the own ones. Once there, the file is not needed."""
    path = data.get("model_config_file")
    if not path or not isinstance(path, str):
        return data
    own = data.get("models") or {}
    name = data.get("model") or _name(Path(path))
    if not isinstance(own, Mapping):
        return data
    if name in own:
        there = own[name]
        if (there.get("source") if isinstance(there, Mapping) else there.source) == path:
            return data
        raise UsageError(f"{_FLAG} {path}: models has a {name} already; give another --model NAME")
    return {**data, "model": name, "models": {**own, name: _read(str(name), path)}}


def _name(path: Path) -> str:
    """The file is called config.json nearly everywhere; its directory says of which model it is."""
    return path.resolve().parent.name if path.stem == "config" else path.stem


def _read(name: str, path: str) -> dict[str, Any]:
    from kvspill.models.hub import read_model

    try:
        document = parse_json(read_input(path, CONFIGURATION))
    except OSError as error:
        reason = reason_of(error)
        raise UsageError(f"{_FLAG} {path}: cannot be read ({reason}); name a readable file") from error
    except (json.JSONDecodeError, UnicodeDecodeError, TooMuch) as error:
        raise UsageError(f"{_FLAG} {path}: broken JSON ({error}); name a model's config.json") from error
    if not isinstance(document, dict):
        raise UsageError(f"{_FLAG} {path}: not an object with keys; name a model's config.json")
    spec = read_model(name, f"{_FLAG} {path}", document)
    return {
        "layers": spec.layers,
        "groups": [asdict(group) for group in spec.groups],
        "max_tokens": spec.max_tokens,
        "source": path,
    }
