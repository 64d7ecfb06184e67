"""Whole runs with faults, checked after every operation; a failing seed replays exactly.

`python tests/sim/sweep.py 0:1000` runs a thousand, as `make test-all` does.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kvspill.cache.cache import Cache
from kvspill.cache.core import Core
from kvspill.cache.tier import TierState
from kvspill.records import Outcome
from kvspill.serving.engine import Engine
from sim import sweep

SEEDS = 200
PER_TEST = 25
DEFECT_SEEDS = range(30)


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_no_fault_breaks_a_ledger_or_invents_a_hit(first: int) -> None:
    faults: Counter[str] = Counter()
    for seed in range(first, first + PER_TEST):
        faults += sweep.run_seed(seed).faults
    assert len(faults) >= 8, "these seeds inject too few kinds of faults to prove anything"


def replayed_digest(seed: int, hash_seed: Any) -> Any:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, str(Path(sweep.__file__)), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()[1]


@pytest.mark.parametrize("seed", [17, 42])
def test_the_printed_command_replays_a_seed_exactly(seed: int) -> None:
    here = sweep.run_seed(seed).digest
    assert {replayed_digest(seed, hash_seed) for hash_seed in (1, 2)} == {here}


def forget_to_free(real: Any) -> Any:
    def take(self: Any, nbytes: int) -> None:
        real(self, nbytes if nbytes > 0 else 0)

    return take


def free_too_early(real: Any) -> Any:
    async def delete(self: Any, tier: Any, *rest: Any) -> Any:
        tier.take(-1)
        return await real(self, tier, *rest) - 1

    return delete


def call_failures_hits(real: Any) -> Any:
    async def load(self: Any, entries: Any, kinds: Any) -> Any:
        await real(self, entries, kinds)
        return [Outcome.HIT] * len(entries)

    return load


def lose_a_request(real: Any) -> Any:
    async def serve(self: Any, request: Any, *rest: Any) -> Any:
        return await real(self, request, *rest) if request.turn != 1 else (0, 0)

    return serve


DEFECTS = [
    (TierState, "take", forget_to_free),
    (Core, "delete", free_too_early),
    (Cache, "load", call_failures_hits),
    (Engine, "_serve", lose_a_request),
]


@pytest.mark.parametrize(
    ("owner", "name", "defect"), DEFECTS, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_planted_defect_is_found_and_its_seed_named(owner: Any, name: Any, defect: Any) -> None:
    with mock.patch.object(owner, name, defect(getattr(owner, name))):
        failures = [failure for seed in DEFECT_SEEDS if (failure := failure_of(seed)) is not None]
    assert failures
    assert all(f"replay: python tests/sim/sweep.py {seed}" in text for seed, text in failures)


def failure_of(seed: int) -> Any:
    try:
        sweep.run_seed(seed)
    except sweep.SeedFailed as failure:
        return seed, str(failure)
    return None
