"""Bounds of the hit rate, against brute force and against each other."""

from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.serving.bounds import Access, AccessLog, HitBounds, hit_bounds

CHAINS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4)).map(lambda pair: (f"c{pair[0]}", pair[1])), max_size=12
)


def log_of(requests: Any, size: int = 10, **options: Any) -> Any:
    log = AccessLog(**options)
    for keys in requests:
        log.add([Access(key, size) for key in keys])
    return log


def bounds_of(log: AccessLog, capacity_bytes: int) -> HitBounds:
    found = hit_bounds(log, capacity_bytes)
    assert found is not None
    return found


def test_an_unlimited_cache_finds_everything_but_the_first_use() -> None:
    bounds = bounds_of(log_of([["a", "b"], ["a", "b", "c"], ["a"]]), 1 << 60)
    assert bounds.infinite == bounds.belady == bounds.lru == pytest.approx(3 / 6)
    assert bounds.belady_exact


def test_foresight_keeps_what_comes_back_and_recency_does_not() -> None:
    """A loop over three objects with room for two: LRU finds nothing, foresight keeps two of them."""
    bounds = bounds_of(log_of([["a"], ["b"], ["c"]] * 4), 20)
    assert bounds.lru == 0
    assert bounds.infinite == pytest.approx(9 / 12)
    assert bounds.belady == pytest.approx(6 / 12)


def test_a_capacity_that_holds_no_block_finds_nothing() -> None:
    bounds = bounds_of(log_of([["a"], ["a"]]), 9)
    assert (bounds.belady, bounds.lru, bounds.infinite) == (0, 0, 0.5)


def test_writes_make_resident_and_are_not_counted() -> None:
    log = AccessLog(chained=False)
    log.add([Access("a", 10, counted=False)])
    log.add([Access("a", 10)])
    bounds = bounds_of(log, 100)
    assert bounds.looked_up_bytes == 10
    assert bounds.infinite == bounds.lru == 1.0


def test_different_sizes_make_foresight_an_upper_bound() -> None:
    log = AccessLog()
    log.add([Access("a", 10), Access("b", 7)])
    assert bounds_of(log, 12).belady_exact is False


def test_nothing_looked_up_has_no_bounds() -> None:
    assert hit_bounds(AccessLog(), 100) is None


def test_a_full_log_keeps_whole_requests_and_says_so() -> None:
    log = log_of([["a", "b"], ["a", "b"], ["a", "b"]], limit=3)
    assert len(log.ends) == 2
    assert bounds_of(log, 100).truncated


def best_hits(sequence: Any, room: Any) -> Any:
    """Every choice of what to keep, tried."""

    @lru_cache(None)
    def best(place: Any, kept: Any) -> Any:
        if place == len(sequence):
            return 0
        key = sequence[place]
        hit = key in kept
        candidates = kept | {key}
        choices = [frozenset(candidates)] if len(candidates) <= room else []
        choices += [frozenset(candidates - {gone}) for gone in candidates if len(candidates) - 1 <= room]
        return hit + max(best(place + 1, choice) for choice in choices)

    return best(0, frozenset())


@settings(max_examples=60, deadline=None)
@given(sequence=st.lists(st.sampled_from("abcde"), min_size=1, max_size=10), room=st.integers(1, 3))
def test_foresight_is_exact_for_blocks_of_one_size(sequence: Any, room: Any) -> None:
    bounds = bounds_of(log_of([[key] for key in sequence]), room * 10)
    assert bounds.belady * len(sequence) == pytest.approx(best_hits(tuple(sequence), room))


@settings(deadline=None)
@given(chains=CHAINS, room=st.integers(0, 12))
def test_the_bounds_are_ordered(chains: Any, room: Any) -> None:
    requests = [[f"{name}_{place}" for place in range(length)] for name, length in chains]
    bounds = hit_bounds(log_of(requests), room * 10)
    if bounds is not None:
        assert 0 <= bounds.lru <= bounds.belady <= bounds.infinite <= 1


def test_requests_count_in_the_order_in_which_they_asked() -> None:
    log = AccessLog()
    log.add([Access("a", 10)], started_ns=5)
    log.add([Access("b", 10), Access("c", 10)], started_ns=3)
    log.add([Access("a", 10)], started_ns=4)
    log.sort()
    names = {number: name for name, number in log._names.items()}
    assert [names[number] for number in log.numbers] == ["b", "c", "a", "a"]
    assert list(log.ends) == [2, 3, 4]
