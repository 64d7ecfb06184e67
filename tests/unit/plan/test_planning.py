"""What a plan simulates: no seed and no number of users that a load cannot have."""

from collections.abc import Sequence
from typing import cast

import pytest

from kvspill.config import Config
from kvspill.plan.options import Choice, parse_option
from kvspill.plan.planning import Asked, plan, simulations_at_least
from kvspill.plan.simulations import Facts, Pool, Simulation


def asked(**changes: int) -> Asked:
    config = Config(model="tiny-1b", duration=8, **changes)
    return Asked(config, [Choice(parse_option("nvme-gen4"), 1, 0.0)])


class NotedError(Exception):
    """The searches are noted; nothing is simulated."""


class Noting:
    """Stands in for the processes that simulate."""

    def __init__(self) -> None:
        self.searches: list[Simulation] = []

    def all(self, wanted: Sequence[Simulation], what: str) -> list[Facts]:
        if what == "a device without delay":
            return [{"passed": 1, "failed": None}]
        self.searches += wanted
        raise NotedError


@pytest.mark.parametrize("seed", [42, 2**63 - 1, -(2**63)])
def test_the_largest_seed_has_others_beside_it_too(seed: int) -> None:
    """The one above it was refused, in the middle of a plan."""
    assert simulations_at_least(asked(seed=seed)) == simulations_at_least(asked())


def test_no_more_users_are_tried_than_a_load_can_have() -> None:
    """Twice 600,000 users were refused, in the middle of a plan."""
    pool = Noting()
    with pytest.raises(NotedError):
        plan(asked(num_users=600_000), cast(Pool, pool))
    assert [search.most for search in pool.searches] == [1_000_000]
