"""A workload divided over ranks is the same work, whatever their number (R1, S9)."""

from itertools import islice
from typing import Any

import pytest

from contract.test_workload_contract import KINDS, digest
from kvspill.config import Config
from kvspill.records import Request
from kvspill.workload.divided import DividedWorkload, Share
from kvspill.workload.rate import in_arrival_order
from kvspill.workload.registry import make_workload
from kvspill.world import World


def divided(config: Config, index: int, size: int) -> DividedWorkload:
    return DividedWorkload(config, make_workload(config, World(config.seed), 1 << 60), Share(index, size))


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_every_user_belongs_to_one_rank_r1(size: int) -> None:
    shares = [Share(index, size) for index in range(size)]
    for user in range(30):
        assert [share.owns(user) for share in shares].count(True) == 1
    for users in range(30):
        assert sum(share.of(users) for share in shares) == users
        assert [share.of(users) for share in shares] == [sum(map(s.owns, range(users))) for s in shares]


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_requests_of_all_are_served_by_their_ranks_r1(kind: str, size: int) -> None:
    changes: dict[str, Any] = {"num_users": 9, **KINDS[kind], "max_requests": 150}
    config = Config(**changes)
    whole = list(islice(in_arrival_order(make_workload(config, World(config.seed), 1 << 60)), 150))
    parts = [list(divided(config, index, size).session(0)) for index in range(size)]
    for index, part in enumerate(parts):
        assert all(request.user % size == index for request in part)
    together = sorted((request for part in parts for request in part), key=_order)
    assert together == sorted(whole, key=_order)
    assert digest(together, KINDS[kind]) == digest(whole, KINDS[kind])


@pytest.mark.parametrize("kind", ["synthetic", "rag", "sharegpt"])
def test_users_of_others_ask_nothing_here_r1(kind: str) -> None:
    config = Config(num_users=7, duration=10.0, **KINDS[kind])
    whole = make_workload(config, World(config.seed), 1 << 60)
    parts = [divided(config, index, 3) for index in range(3)]
    for user in range(7):
        expected = list(islice(whole.session(user), 20))
        for index, part in enumerate(parts):
            assert list(islice(part.session(user), 20)) == (expected if user % 3 == index else [])


@pytest.mark.parametrize("limit", [None, 60])
def test_closed_users_of_a_recording_take_their_ranks_conversations_r1(limit: int | None) -> None:
    config = Config(num_users=4, arrival="closed", trace="azure:sample", max_requests=limit)
    whole = list(islice(make_workload(config, World(1), 1 << 60).session(0), limit))
    parts = [divided(config, index, 2) for index in range(2)]
    assert list(parts[0].session(1)) == [], "the second user belongs to the other rank"
    found = [request for index, part in enumerate(parts) for request in part.session(index)]
    assert sorted(found, key=_order) == sorted(whole, key=_order)


def _order(request: Request) -> tuple[int, ...]:
    return request.user, request.conversation, request.turn
