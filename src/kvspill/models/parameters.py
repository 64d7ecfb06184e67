"""How many parameters compute a token, as the names of models say it, and what recomputing one takes."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

PREFILL_SECONDS_OF_64K = 12.0
"""Published: a prompt of 65,536 tokens takes 12 s to recompute with a model of 8 billion parameters."""
PUBLISHED_BILLIONS = 8.0
PUBLISHED_US_PER_TOKEN = round(PREFILL_SECONDS_OF_64K / 65_536 * 1e6, 1)
_WHERE_FROM = f"from a published {PREFILL_SECONDS_OF_64K:g} s for 65,536 tokens of a model of 8B"

_SIZE = r"(\d+(?:\.\d+)?)b(?![a-z0-9])"
_ACTIVE = re.compile(rf"(?<![a-z0-9])a{_SIZE}")
_WHOLE = re.compile(rf"(?<![a-z0-9.]){_SIZE}")
_PUBLISHED_ACTIVE: Final[Mapping[str, float]] = MappingProxyType({"gpt-oss-120b": 5.1, "gpt-oss-20b": 3.6})
"""Models of experts whose names say how many parameters they have, not how many compute a token."""


class Recompute(NamedTuple):
    """GPU time for a context token, and where the figure comes from."""

    us_per_token: float
    source: str


def active_billions(name: str) -> float | None:
    """Billions of parameters that compute a token: those named active (30b-a3b), else the size (8b).

    None where the name has no size, or one that says little of the work, such as 8x7b or e2b.
    """
    if name.lower() in _PUBLISHED_ACTIVE:
        return _PUBLISHED_ACTIVE[name.lower()]
    found = _ACTIVE.search(name.lower()) or _WHOLE.search(name.lower())
    return float(found[1]) if found else None


def recompute_of(model: str, given_us_per_token: float | None) -> Recompute:
    """As given, or the published figure in proportion to the model's parameters."""
    if given_us_per_token is not None:
        return Recompute(given_us_per_token, "as given by --recompute-us-per-token")
    billions = active_billions(model)
    if billions is None:
        unknown = f"the parameters of {model} are not known, so it is that of 8B"
        return Recompute(PUBLISHED_US_PER_TOKEN, f"{_WHERE_FROM}; {unknown}: give --recompute-us-per-token")
    scaled = round(PUBLISHED_US_PER_TOKEN * billions / PUBLISHED_BILLIONS, 1)
    return Recompute(scaled, f"{_WHERE_FROM}, in proportion to the {billions:g}B of {model}")
