"""Damaged results: whatever is broken inside a document, the answer is a page or one line, never a crash."""

import copy
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kvspill.errors import UsageError
from kvspill.report.compare.comparison import compare
from kvspill.report.compare.runs import read_runs
from kvspill.result.reading import load_result
from kvspill.result.trials import combine
from unit.report.compare.made import write
from unit.result import sample

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    10**30,
    float("nan"),
    "",
    "text",
    [],
    ["x"],
    {},
    {"x": None},
    [[]],
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document that is not one of many alike."""
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    found = [path] if path else []
    for key, inner in items:
        if path[:1] != ("metrics",) or len(found) < 40:
            found += places(inner, (*path, key))
    return found


def damaged(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    broken = copy.deepcopy(document)
    path = chance.choice(places(document))
    parent = broken
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = chance.choice(JUNK)
    return broken


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    steps = [{"time_seconds": 1.0, "users": 2, "throughput": 3.0, "action": "up", "reason": "room"}]
    built = combine([sample.built(autoscaling=steps), sample.built(autoscaling=steps)])
    return json.loads(json.dumps(built.document()))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_result_is_compared_or_refused(whole: dict[str, Any], seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for number in range(8):
        path = write(tmp_path / f"r{number}.json", damaged(whole, chance))
        with suppress(UsageError):
            runs = read_runs([path])
            compare(runs, runs)


@pytest.mark.parametrize("path", [("config", "cpu_mem_gb"), ("trials", "rows", 0, "digest")])
@pytest.mark.parametrize("junk", [[], {}, "text"])
def test_what_is_gathered_into_sets_may_be_anything(
    whole: dict[str, Any], path: tuple[Any, ...], junk: Any, tmp_path: Path
) -> None:
    broken = copy.deepcopy(whole)
    parent: Any = broken
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = junk
    runs = read_runs([write(tmp_path / "r.json", broken)])
    assert compare(runs, runs).configurations >= 1


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_result_is_shown_or_refused(
    whole: dict[str, Any], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2")
    from kvspill.report.html import page
    from unit.report.html.pages import build_page

    # Plots and their library take seconds to make and know nothing of damage.
    monkeypatch.setattr(page, "_library", lambda: "")
    monkeypatch.setattr(page, "_compiled", lambda spec: spec)
    chance = random.Random(1000 + seed)
    for number in range(8):
        path = write(tmp_path / f"r{number}.json", damaged(whole, chance))
        with suppress(UsageError):
            assert build_page([("r", load_result(path))])
