"""Free memory kept as runs: nothing is handed out twice, and what comes back joins its neighbours."""

from hypothesis import given
from hypothesis import strategies as st

from kvspill.storage.arena import Run, RunPool

PLACES = 64


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 24), st.integers(0, 99))))
def test_nothing_is_handed_out_twice_and_everything_can_be_had_again(
    steps: list[tuple[bool, int, int]],
) -> None:
    pool = RunPool(PLACES)
    held: list[list[Run]] = []
    for takes, count, which in steps:
        if takes:
            runs = pool.take_runs(count)
            assert (runs is None) == (count > PLACES - _places(held))
            held += [] if runs is None else [runs]
        elif held:
            pool.give_back_runs(held.pop(which % len(held)))
        taken = [place for runs in held for start, end in runs for place in range(start, end)]
        assert len(taken) == len(set(taken)) == PLACES - pool.free
        assert all(0 <= place < PLACES for place in taken)
    for runs in held:
        pool.give_back_runs(runs)
    assert pool.take_runs(PLACES) == [(0, PLACES)]


def test_an_object_lies_together_where_a_run_is_long_enough() -> None:
    pool = RunPool(30)
    first, second, third = (pool.take_runs(10) or [] for _ in range(3))
    pool.give_back_runs(first)
    pool.give_back_runs(third)
    assert pool.take_runs(12) == [(0, 10), (20, 22)]
    pool.give_back_runs([(0, 10)])
    pool.give_back_runs(second)
    assert pool.take_runs(20) == [(0, 20)]


def _places(held: list[list[Run]]) -> int:
    return sum(end - start for runs in held for start, end in runs)
