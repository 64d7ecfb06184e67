"""Every damage of a stored entry is found: torn, stale and misdirected ones by their stamps, bits in full."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvspill.storage import fastio
from real.corrupting import (
    FULL_FINDS,
    STAMP_FINDS,
    damage,
    flip_anywhere,
    misdirected_read,
    options_for,
    stale_generation,
    torn_to_the_past,
)

pytestmark = pytest.mark.real

CASES = [("stamp", kind) for kind in STAMP_FINDS] + [("full", kind) for kind in FULL_FINDS]


def run(tmp_path: Path, kind: Any, count: int, *options: Any) -> Any:
    return asyncio.run(damage(tmp_path, kind, count, options_for(*options), seed=1))


@pytest.mark.parametrize(("verify", "kind"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_every_damage_is_found(tmp_path: Path, verify: Any, kind: Any) -> None:
    answers = run(tmp_path, kind, 10, verify)
    assert answers["hit"] == 0, answers


@pytest.mark.parametrize("kind", FULL_FINDS, ids=lambda kind: kind.__name__)
def test_every_damage_is_found_without_the_compiled_helper_and_without_direct_io(
    tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastio, "_compiled", None)
    answers = run(tmp_path, kind, 5, "full", "off")
    assert answers["hit"] == 0, answers


def test_stamps_alone_do_not_claim_to_find_every_bit(tmp_path: Path) -> None:
    """What the documentation says of `stamp`, so that nobody relies on more."""
    assert run(tmp_path, flip_anywhere, 20, "stamp")["hit"] > 0


def test_a_stale_generation_and_another_entry_are_named_as_such(tmp_path: Path) -> None:
    assert set(run(tmp_path, stale_generation, 5, "stamp")) == {"stale_generation"}
    assert set(run(tmp_path, misdirected_read, 5, "stamp")) == {"misdirected"}
    assert set(run(tmp_path, torn_to_the_past, 5, "stamp")) == {"torn"}
