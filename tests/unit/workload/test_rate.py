"""Claims about a fixed rate: the same requests in the same order, at new times, for every workload."""

import statistics
from itertools import islice, pairwise
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import NS_PER_SEC, Request
from kvspill.workload.rate import in_arrival_order
from kvspill.workload.registry import make_workload
from kvspill.world import World

KINDS = [
    {},
    {"enable_rag": True},
    {"dataset_path": "sample"},
    {"trace": "mooncake:sample", "replay_cycles": 3},
    {"trace": "weka:sample", "replay_cycles": 8},
    {"decode_only": True},
]


def made(**changes: Any) -> Any:
    config = Config(**changes)
    return make_workload(config, World(config.seed), 1 << 60)


def first(workload: Any, count: int = 150) -> list[Request]:
    return list(islice(workload.session(0), count))


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_rate_spaces_every_workloads_requests_evenly(kind: dict[str, Any]) -> None:
    found = first(made(**kind, request_rate=40))
    assert [request.intended_ns for request in found] == [number * NS_PER_SEC // 40 for number in range(150)]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_times_differ_from_the_workloads_own(kind: dict[str, Any]) -> None:
    own = list(islice(in_arrival_order(made(**kind)), 150))
    rated = first(made(**kind, request_rate=40, rate_process="poisson"))
    assert [request._replace(intended_ns=0) for request in rated] == [
        request._replace(intended_ns=0) for request in own
    ]


def test_poisson_gaps_have_the_mean_of_the_rate_and_spread_as_much() -> None:
    times = [request.intended_ns for request in first(made(request_rate=20, rate_process="poisson"), 5000)]
    gaps = [(later - earlier) / NS_PER_SEC for earlier, later in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 20, rel=0.06)
    assert statistics.stdev(gaps) == pytest.approx(1 / 20, rel=0.1)
    assert min(gaps) >= 0


def test_a_long_run_at_a_constant_rate_does_not_drift() -> None:
    times = [request.intended_ns for request in first(made(request_rate=3), 30_001)]
    assert times[-1] == 10_000 * NS_PER_SEC


def test_all_users_share_the_stream_and_each_request_comes_once() -> None:
    rated = made(request_rate=10, num_users=4)
    sessions = [rated.session(user) for user in range(4)]
    taken = [next(sessions[number % 4]) for number in range(100)]
    assert len({request.key for request in taken}) == 100
    assert [request.intended_ns for request in taken] == [number * NS_PER_SEC // 10 for number in range(100)]


def test_a_rate_contradicts_users_who_wait_for_answers() -> None:
    with pytest.raises(UsageError, match="--request-rate 5 contradicts --arrival closed"):
        Config(request_rate=5, arrival="closed")
