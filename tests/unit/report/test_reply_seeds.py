"""What an answer says of the seed, which draws the users."""

from dataclasses import replace

import pytest

from kvspill.config import Config
from kvspill.report.reply.text import lines
from kvspill.result.answer import Status
from kvspill.run.asking import Reply
from kvspill.run.verdict import Bracket, by_most
from kvspill.texts import duration
from unit.report.replies import of_level, replied
from unit.result.sample import built


def test_an_answer_is_said_to_depend_on_the_seed() -> None:
    mixed = replied(built(), by_seed={42: Status.YES, 43: Status.NO, 44: Status.NO})
    said = "The answer depends on the seed, which draws the users"
    assert mixed[0].startswith("NO, by 2 of 3 seeds: ")
    each = "yes with seed 42 (no interactive user), no with seed 43, no with seed 44"
    assert mixed[1] == f"{said}: {each}. The figures are of seed 42."
    same = replied(built(), by_seed={42: Status.NO, 43: Status.NO, 44: Status.NO})
    assert same[0].startswith("NO: ")
    assert (
        same[1]
        == "Results by seed (each draws other users): no with seed 42, no with seed 43, no with seed 44."
    )


def test_where_the_seeds_differ_the_limit_is_that_of_one_of_them() -> None:
    seeds = {42: Status.YES, 43: Status.NO, 44: Status.NO}
    result = built().model_copy(update={"seed": 43})
    reply = Reply(Status.NO, 5, Config(), result, Bracket(None, 1, True), None, 0, 0, by_seed=seeds)
    text = " ".join(lines(reply))
    assert "With seed 43, this storage behind DRAM, " in text
    assert "does not hold a single user" in text
    assert "Twice the speed would hold none either (modelled with seed 43)." in text
    alike = " ".join(lines(replace(reply, by_seed={42: Status.NO, 43: Status.NO, 44: Status.NO})))
    assert "This storage behind DRAM" in alike
    assert "(modelled)." in alike


def test_as_many_seeds_for_as_against_are_no_verdict() -> None:
    seeds = {42: Status.YES, 43: Status.NO, 44: Status.UNDECIDED}
    reply = Reply(
        Status.UNDECIDED, 5, Config(), built(), Bracket(5, None, True), None, None, None, by_seed=seeds
    )
    (first, *_rest) = lines(reply)
    assert first.startswith("NO VERDICT: 5 users")
    assert first.endswith("as many seeds say yes as no; give a longer --duration or another --seed.")


def test_one_seed_beside_two_without_an_answer_is_no_verdict_and_said_to_be_alone() -> None:
    seeds = {42: Status.YES, 43: Status.UNDECIDED, 44: Status.INVALID}
    reply = Reply(
        by_most(seeds), 5, Config(), built(), Bracket(5, None, True), None, None, None, by_seed=seeds
    )
    (first, *_rest) = lines(reply)
    assert first.startswith("NO VERDICT: 5 users")
    assert "only 1 of 3 seeds says yes, and the others have no verdict; give --duration " in first
    most = replied(built(), by_seed={42: Status.NO, 43: Status.UNDECIDED, 44: Status.NO})
    assert most[0].startswith("NO, by 2 of 3 seeds: ")


@pytest.mark.parametrize(("p95_ms", "near"), [(60.0, True), (500.0, False)])
def test_a_measured_answer_near_its_target_doubts_its_seed(p95_ms: float, near: bool) -> None:
    text = " ".join(replied(of_level(3, interactive=(60, 9, p95_ms, "missed"))))
    doubt = "One draw of users was measured and the target is near: another --seed may answer otherwise."
    assert (doubt in text) is near
    shown = "(p95 of 60 requests in 2 windows); the target is 50 ms."
    assert f"added {duration(p95_ms)} to interactive requests {shown}" in text


def of_few(*, modelled: int | None, **seeds: Status) -> list[str]:
    """The text of a measured yes, beside what a model says of this draw and of others."""
    nobody = (0, 0, None, "no verdict")
    kept = of_level(4, interactive=nobody, responsive=nobody, batch=(90, 0, 10.0, "met"))
    last = kept.autoscaling_stats[-1]
    last["levels"][0].update(passes=True, enough=True)
    others = {int(seed.removeprefix("seed")): said for seed, said in seeds.items()}
    bracket = Bracket(4, None, True)
    reply = Reply(Status.YES, 4, Config(), kept, bracket, None, modelled, None, modelled_by_seed=others)
    return list(lines(reply))


def test_a_yes_says_first_of_which_classes_it_has_nobody() -> None:
    text = of_few(modelled=8, seed43=Status.NO, seed44=Status.YES)
    assert text[0].startswith(
        "YES for batch users only: 4 users of llama3.1-8b, none of them interactive or responsive, keep the "
        "latency target of batch on "
    )
    assert text[1] == (
        "Seed 42 draws no interactive or responsive user among 4, so these classes are not covered; give "
        "another --seed or more --users. By a model, 4 users with interactive (50 ms) and responsive "
        "(100 ms) ones among them would miss the target (--seed 43 draws such)."
    )
    held = [line for line in text if "holds at least" in line]
    assert held[0].endswith("at least 8 users that seed 42 draws, by the model."), "of others it said no"
    other = of_few(modelled=8, seed43=Status.YES, seed44=Status.YES)
    assert other[0].startswith("YES for batch users only: ")
    assert "By a model" not in other[1]


def test_an_answer_that_another_draw_contradicts_is_said_to_be_of_these_users() -> None:
    """Each class has users in both draws, but the model says yes of one and no of the other."""
    result = of_level(5, interactive=(60, 9, 60.0, "missed"))
    config = Config(num_users=5, slo_classes=("interactive",))
    by_model = {43: Status.YES, 44: Status.YES}
    reply = Reply(Status.NO, 5, config, result, Bracket(None, 5, True), None, 2, None)
    (first, *_rest) = lines(replace(reply, modelled_by_seed=by_model))
    assert first.startswith(
        "NO for the users that seed 42 draws, YES by a model for those of seeds 43 and 44: "
    )


def test_a_measured_answer_says_what_a_model_says_of_other_seeds() -> None:
    text = of_few(modelled=8, seed43=Status.NO, seed44=Status.YES)
    alone = "The seed draws the users, and only seed 42 was measured; a model of this storage says "
    assert text[2] == f"{alone}no with seed 43, yes with seed 44 (no interactive user)."
    agreed = of_few(modelled=8, seed43=Status.YES, seed44=Status.YES)
    assert agreed[0].startswith("YES for batch users only: ")
    assert agreed[2] == f"{alone}yes with seed 43 (no batch user), yes with seed 44 (no interactive user)."


def test_a_model_that_did_not_get_to_other_seeds_says_so_in_a_line() -> None:
    """It said nothing at all, as if there were no other draws."""
    reply = Reply(Status.YES, 4, Config(), built(), Bracket(4, None, True), None, 8, None)
    alone = "The seed draws the users, and only seed 42 was measured; "
    none = " ".join(lines(replace(reply, seeds_not_modelled=2)))
    assert f"{alone}other seeds were not modelled within 12 s." in none
    one = replace(reply, modelled_by_seed={43: Status.YES}, seeds_not_modelled=1)
    said = "a model of this storage says yes with seed 43 (no batch user)"
    few = "others were not modelled within 12 s"
    assert f"{alone}{said}; {few}." in " ".join(lines(one))


def test_a_model_that_the_measurement_refutes_puts_nothing_into_the_first_line() -> None:
    text = of_few(modelled=2, seed43=Status.NO, seed44=Status.NO)
    assert text[0].startswith("YES for batch users only: ")
    assert "By a model" not in text[1]
    assert text[2].endswith(
        "no with seed 43, no with seed 44, but also no with seed 42, which the measurement refutes."
    )


def test_a_class_without_users_puts_the_seed_in_doubt_where_no_model_told_of_others() -> None:
    text = of_few(modelled=None)
    assert text[2] == "One draw of users was measured: another --seed may answer otherwise."


def test_many_measured_users_are_one_draw_too() -> None:
    result = of_level(80, interactive=(60, 9, 60.0, "missed"))
    many = Reply(Status.NO, 100, Config(), result, Bracket(60, 80, True), None, None, None)
    assert "One draw of users was measured and the target is near" in " ".join(lines(many))


def test_users_far_from_the_limit_are_not_doubted_for_their_seed() -> None:
    result = of_level(5, interactive=(60, 9, 90.0, "missed"))
    for simulated in (False, True):
        search = result.model_copy(update={"simulated": simulated})
        far = Reply(Status.NO, 100, Config(), search, Bracket(3, 5, True), None, None, None)
        assert "another --seed" not in " ".join(lines(far))
        assert "another --seed may answer otherwise." in " ".join(lines(replace(far, users=6)))
