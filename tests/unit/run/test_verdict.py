"""What the windows of a search say of the users that were asked about, near the limit as well."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.result.answer import Status
from kvspill.result.schema import Result
from kvspill.run.asking import question
from kvspill.run.runner import simulate_aside
from kvspill.run.verdict import at_the_limit, judge, level_of, read_bracket, rests_on
from unit.result.sample import built


def level(users: int, passed: int, windows: int, *, passes: bool, clear: bool = False) -> dict[str, Any]:
    kept = {"level": users, "windows": windows, "windows_passed": passed}
    return {**kept, "passes": passes, "clear": clear, "enough": True}


def searched(*levels: dict[str, Any]) -> Result:
    """A result whose search held these levels and named none of them."""
    last = {"users": None, "concluded": False, "levels": list(levels)}
    return built().model_copy(update={"autoscaling_stats": [last]})


def judged(users: int, *levels: dict[str, Any]) -> Status:
    result = searched(*levels)
    return judge(result, read_bracket(result.autoscaling_stats), users)


THIRTEEN_FAIL = level(13, 0, 4, passes=False, clear=True)


def test_the_windows_of_the_users_asked_about_answer_before_those_of_fewer() -> None:
    assert judged(16, THIRTEEN_FAIL, level(16, 3, 3, passes=True)) is Status.YES
    assert judged(16, THIRTEEN_FAIL, level(16, 5, 7, passes=True, clear=True)) is Status.YES
    assert judged(16, THIRTEEN_FAIL, level(16, 0, 2, passes=False)) is Status.NO
    assert judged(16, level(16, 0, 1, passes=False, clear=True)) is Status.NO
    assert judged(16, THIRTEEN_FAIL) is Status.NO, "of 16 nothing was measured"


@pytest.mark.parametrize("passes", [True, False])
def test_windows_that_differ_without_a_clear_answer_are_at_the_limit(passes: bool) -> None:
    asked = level(16, 2, 4, passes=passes)
    result = searched(THIRTEEN_FAIL, asked)
    assert judged(16, THIRTEEN_FAIL, asked) is Status.UNDECIDED
    assert at_the_limit(result, 16)
    bracket = read_bracket(result.autoscaling_stats)
    assert rests_on(result, bracket, 16, Status.UNDECIDED) == asked
    assert not at_the_limit(result, 13)


@pytest.mark.parametrize("passes", [True, False])
def test_one_window_in_doubt_is_no_answer(passes: bool) -> None:
    alone = level(16, int(passes), 1, passes=passes)
    assert judged(16, alone) is Status.UNDECIDED
    assert not at_the_limit(searched(alone), 16), "nobody looked a second time"


def test_a_clear_failure_of_far_fewer_users_answers_where_a_window_is_in_doubt() -> None:
    doubt = level(16, 0, 1, passes=False)
    assert judged(16, level(8, 0, 1, passes=False, clear=True), doubt) is Status.NO
    assert judged(16, level(12, 0, 1, passes=False, clear=True), doubt) is Status.UNDECIDED


def test_a_no_rests_on_the_users_asked_about_where_they_had_enough_requests() -> None:
    def evidence(*levels: dict[str, Any]) -> object:
        result = searched(*levels)
        return rests_on(result, read_bracket(result.autoscaling_stats), 16, Status.NO)

    doubt, asked = level(13, 0, 1, passes=False), level(16, 0, 1, passes=False, clear=True)
    few = {**asked, "enough": False}
    assert evidence(THIRTEEN_FAIL, asked) == asked
    assert evidence(THIRTEEN_FAIL, few) == THIRTEEN_FAIL
    assert evidence(doubt, few) == few
    assert evidence({**THIRTEEN_FAIL, "enough": False}, few) == few, "neither had enough"
    assert evidence(THIRTEEN_FAIL, level(16, 0, 1, passes=False)) == THIRTEEN_FAIL
    assert evidence(THIRTEEN_FAIL) == THIRTEEN_FAIL, "16 were not measured"


@pytest.mark.parametrize(("users", "answer"), [(13, Status.NO), (16, Status.YES)])
def test_users_near_the_limit_are_measured_until_it_is_clear(users: int, answer: Status) -> None:
    """With this seed 13 users miss the target and 16 keep it, as runs of fixed users over an hour say."""
    asked = Config(model="tiny-1b", num_users=users, device_profile="nvme-gen5", cpu_mem_gb=0, duration=3600)
    result = simulate_aside(question(asked))
    steps = result.autoscaling_stats
    assert (steps[0]["users"], steps[0]["passes"]) == (users, False), "the first window fails by chance"
    found = level_of(steps, users)
    assert found is not None
    assert found["windows"] > found["windows_passed"] > 0
    assert found["clear"]
    assert judge(result, read_bracket(steps), users) is answer
