"""Reuse distances against an LRU list that is kept by hand."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.serving.stack import NEW, reuse_bytes

REQUESTS = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=30)


def by_hand(requests: list[list[int]], sizes: list[int], chained: bool) -> list[int]:
    stack: list[int] = []
    distances = []
    for request in requests:
        for number in request:
            above = stack[stack.index(number) + 1 :] if number in stack else None
            distances.append(
                int(NEW) if above is None else sum(sizes[other] for other in above) + sizes[number]
            )
        for number in reversed(request) if chained else request:
            if number in stack:
                stack.remove(number)
            stack.append(number)
    return distances


@settings(max_examples=400)
@given(REQUESTS, st.lists(st.integers(1, 9), min_size=10, max_size=10), st.booleans(), st.booleans())
def test_a_distance_is_what_lies_above_in_the_list_and_the_object_itself(
    requests: list[list[int]], sizes: list[int], alike: bool, chained: bool
) -> None:
    sizes = [7] * 10 if alike else sizes
    numbers = np.array([number for request in requests for number in request], np.int32)
    ends = np.cumsum([len(request) for request in requests], dtype=np.int64)
    found = reuse_bytes(numbers, ends, np.array(sizes, np.int64), chained)
    assert found.tolist() == by_hand(requests, sizes, chained)
