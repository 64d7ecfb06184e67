"""Short labels of results: what their names share is dropped, so that they still tell them apart."""

import re
from collections.abc import Sequence

_LONG = 16
"""Shorter names stand whole."""
_PARTS = re.compile(r"([^-_. /]+)")


def told_apart(names: Sequence[str]) -> dict[str, str]:
    """Each name without the parts that all of them begin and end with; whole where that leaves nothing."""
    whole = list(dict.fromkeys(names))
    split = [_PARTS.split(name) for name in whole]
    if len(whole) < 2 or max(map(len, whole)) <= _LONG:
        return {name: name for name in whole}
    start = _shared(split)
    end = _shared([parts[start:][::-1] for parts in split])
    short = ["".join(parts[start : len(parts) - end]).strip("-_. /") for parts in split]
    if not all(short) or len(set(short)) < len(short):
        return {name: name for name in whole}
    return dict(zip(whole, short, strict=True))


def _shared(split: Sequence[Sequence[str]]) -> int:
    """How many parts all of these begin with."""
    count = 0
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        count += 1
    return count
