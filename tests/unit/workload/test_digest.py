"""Claims about the digest (S9): it tells work apart, not order or time, and needs no memory per user."""

import random
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvspill.records import PlannedOp, Purpose, QoS, Request, Verb
from kvspill.workload.digest import Digest


def planned(user: int, turn: int, nbytes: int) -> tuple[Request, list[PlannedOp]]:
    request = Request(user, 0, turn, QoS.BATCH, 0, 0, nbytes, 1)
    return request, [
        PlannedOp(Verb.WRITE, Purpose.PREFILL, request.key, nbytes),
        PlannedOp(Verb.READ, Purpose.DECODE, request.key, nbytes, 3),
    ]


def digest(work: list[tuple[Request, list[PlannedOp]]]) -> str:
    whole = Digest()
    for request, plan in work:
        whole.add(request, plan)
    return whole.hexdigest()


WORK = st.lists(st.builds(planned, st.integers(0, 5), st.integers(0, 5), st.integers(1, 100)), max_size=12)


@given(WORK, st.randoms())
def test_neither_the_order_of_requests_nor_that_of_their_operations_matters(work: Any, rng: Any) -> None:
    shuffled = [(request, rng.sample(plan, len(plan))) for request, plan in work]
    rng.shuffle(shuffled)
    assert digest(shuffled) == digest(work)


@given(WORK, st.integers(1, 7), st.randoms())
def test_digests_of_users_divided_over_ranks_merge_into_that_of_the_whole(
    work: list[tuple[Request, list[PlannedOp]]], ranks: int, rng: random.Random
) -> None:
    """S9: independent of order, so that the digests of ranks merge into that of the whole."""
    parts = [Digest() for _ in range(ranks)]
    for request, plan in work:
        parts[request.user % ranks].add(request, plan)
    rng.shuffle(parts)
    merged = Digest()
    for part in parts:
        merged.merge(part)
    assert merged.hexdigest() == digest(work)


@given(WORK, WORK)
def test_different_work_has_a_different_digest(first: Any, second: Any) -> None:
    def sort_key(item: Any) -> Any:
        return (item[0].user, item[0].turn, item[0].context_tokens)

    same = sorted(first, key=sort_key) == sorted(second, key=sort_key)
    assert (digest(first) == digest(second)) == same


def test_times_do_not_matter() -> None:
    request, plan = planned(1, 2, 3)
    assert digest([(request, plan)]) == digest([(request._replace(intended_ns=99, think_ns=7), plan)])


def test_it_takes_no_memory_per_user() -> None:
    whole = Digest()
    for user in range(2_000):
        whole.add(*planned(user, 0, 10))
    assert sum(sys.getsizeof(value) for value in vars(whole).values()) < 200
