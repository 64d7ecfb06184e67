"""What every workload must keep: order, conversations that add up, and the same work every time."""

from collections import defaultdict
from itertools import islice
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.models.groups import KvSize
from kvspill.records import Request
from kvspill.serving.io_models import IoOptions, make_io_model
from kvspill.workload.base import Workload
from kvspill.workload.digest import Digest
from kvspill.workload.rate import in_arrival_order
from kvspill.workload.registry import make_workload
from kvspill.world import World

KINDS: dict[str, dict[str, Any]] = {
    "synthetic": {},
    "single turns": {"disable_multi_turn": True},
    "rag": {"enable_rag": True},
    "decode node": {"decode_only": True},
    "rate": {"request_rate": 25, "rate_process": "poisson"},
    "sharegpt": {"dataset_path": "sample"},
    "azure": {"trace": "azure:sample"},
    "bailian": {"trace": "bailian:sample"},
    "burstgpt": {"trace": "burstgpt:sample"},
    "mooncake": {"trace": "mooncake:sample"},
    "weka": {"trace": "weka:sample"},
    "fast weka in three passes": {"trace": "weka:sample", "trace_speedup": 7.0, "replay_cycles": 3},
    "rated decodes of a trace": {"trace": "bailian:sample", "decode_only": True, "request_rate": 2},
}
TRACES = [name for name, changes in KINDS.items() if "trace" in changes or "dataset_path" in changes]


def make(name: str, **changes: Any) -> Workload:
    config = Config(**{"num_users": 6, **KINDS[name], **changes})
    return make_workload(config, World(config.seed), 1 << 60)


def asked(workload: Workload, count: int = 400) -> list[Request]:
    return list(islice(in_arrival_order(workload), count))


def digest(requests: list[Request], changes: dict[str, Any]) -> str:
    options = IoOptions(kv=KvSize.even(1024), decode_only="decode_only" in changes)
    model, whole = make_io_model("mlperf", options), Digest()
    for request in requests:
        whole.add(request, model.plan(request))
    return whole.hexdigest()


@pytest.mark.parametrize("name", KINDS)
def test_requests_come_in_the_order_of_their_intended_times(name: str) -> None:
    times = [request.intended_ns for request in asked(make(name))]
    assert times == sorted(times)
    assert times[0] >= 0


@pytest.mark.parametrize("name", KINDS)
def test_every_turn_follows_the_turn_before_and_knows_its_history(name: str) -> None:
    contexts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for request in asked(make(name)):
        before = contexts[request.user, request.conversation]
        assert request.turn == len(before)
        if request.stored is None:
            assert list(request.history_tokens) == before
        before.append(request.context_tokens)


@pytest.mark.parametrize("name", KINDS)
def test_a_user_has_one_class(name: str) -> None:
    """L1"""
    classes = defaultdict(set)
    for request in asked(make(name)):
        classes[request.user].add(request.qos)
    assert all(len(found) == 1 for found in classes.values())


@pytest.mark.parametrize("name", KINDS)
def test_the_same_seed_gives_the_same_requests(name: str) -> None:
    """S9"""
    first, again = asked(make(name)), asked(make(name))
    assert first == again
    assert digest(first, KINDS[name]) == digest(again[::-1], KINDS[name])


@pytest.mark.parametrize("name", ["synthetic", "rag", "sharegpt", "rate", "decode node"])
def test_another_seed_gives_other_requests(name: str) -> None:
    assert asked(make(name)) != asked(make(name, seed=7))


@pytest.mark.parametrize("name", KINDS)
def test_sizes_can_be_stored_and_served(name: str) -> None:
    for request in asked(make(name)):
        assert request.context_tokens >= 1
        assert request.generate_tokens >= 0
        assert request.think_ns >= 0
        assert not request.blocks or request.block_tokens > 0


@pytest.mark.parametrize("name", KINDS)
def test_the_result_can_say_what_was_asked(name: str) -> None:
    made = make(name)
    kind = {"trace": KINDS[name].get("trace", "").split(":")[0], "dataset_path": "sharegpt"}
    expected = next((kind[key] for key in kind if key in KINDS[name]), "synthetic")
    assert made.facts()["kind"] == expected


@pytest.mark.parametrize("name", [name for name in TRACES if name != "rated decodes of a trace"])
def test_closed_users_do_the_same_work_whoever_takes_it(name: str) -> None:
    """S9: in a trace a request's key does not depend on the user who was free."""
    cycles: dict[str, Any] = {"replay_cycles": KINDS[name].get("replay_cycles", 1)}
    alone = make(name, arrival="closed", **cycles)
    together = make(name, arrival="closed", **cycles)
    one_by_one = [request for user in range(alone.users) for request in alone.session(user)]
    sessions = [together.session(user) for user in range(together.users)]
    in_turns: list[Request] = []
    while sessions:
        taken = [(session, next(session, None)) for session in sessions]
        in_turns += [request for _session, request in taken if request is not None]
        sessions = [session for session, request in taken if request is not None]
    assert digest(one_by_one, {}) == digest(in_turns, {})
