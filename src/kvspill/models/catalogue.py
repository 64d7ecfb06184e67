"""The catalogue of models: catalogue.yaml, read once."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from kvspill.models import ModelSpec
from kvspill.models.hub import read_model

_FILE = Path(__file__).with_name("catalogue.yaml")


@cache
def catalogue() -> Mapping[str, ModelSpec]:
    """The models by name."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(_FILE.read_text(encoding="utf-8"), loader)
    return MappingProxyType(
        {
            name: read_model(
                name, f"{_FILE.name}: {name}", entry["config"], title=entry["title"], source=entry["source"]
            )
            for name, entry in entries.items()
        }
    )
