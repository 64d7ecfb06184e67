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
    each = (
        "yes with seed 42 (no interactive user), no with seed 43 (no batch user), no with seed 44 (no "
        "interactive user)"
    )
    assert mixed[1] == f"{said}: {each}. The figures are of seed 42."
    same = replied(built(), by_seed={42: Status.NO, 43: Status.NO, 44: Status.NO})
    assert same[0].startswith("NO: ")
    assert (
        same[1]
        == "Results by seed (each draws other users): no with seed 42, no with seed 43, no with seed 44."
    )


def counted_by(seeds: dict[int, Status]) -> list[str]:
    """The text of a simulated yes for four users, by these seeds."""
    nobody = (0, 0, None, "no verdict")
    kept = of_level(4, interactive=nobody, responsive=nobody, batch=(90, 0, 10.0, "met"))
    kept = kept.model_copy(update={"simulated": True})
    kept.autoscaling_stats[-1]["levels"][0].update(passes=True, enough=True)
    return list(
        lines(Reply(Status.YES, 4, Config(), kept, Bracket(4, None, True), None, 4, None, by_seed=seeds))
    )


def test_a_yes_of_several_seeds_says_what_is_true_of_all_that_it_counts() -> None:
    """Only the first seed has no responsive users, but "none of them responsive" was said of both."""
    text = counted_by({42: Status.YES, 43: Status.NO, 44: Status.YES})
    assert text[0] == (
        "YES (simulated) for some classes only, by 2 of 3 seeds: 4 users of llama3.1-8b, none of them "
        "interactive, keep the latency target of batch on device profile nvme-gen4; of responsive users only "
        "seed 44 has any."
    )
    assert text[1].startswith(
        "No seed that says yes draws any interactive user among 4, so this class is not"
    )
    each = "yes with seed 42 (no interactive or responsive user), no with seed 43 (no batch user), yes with"
    assert each in text[2]


def test_a_yes_of_seeds_that_lack_the_same_classes_names_the_classes_that_it_is_of() -> None:
    (first, *_rest) = counted_by({42: Status.YES, 43: Status.NO})
    assert first.startswith(
        "YES (simulated) for batch users only, by 1 of 2 seeds: 4 users of llama3.1-8b, none of them "
        "interactive or responsive, keep the latency target of batch on "
    )


@pytest.mark.parametrize(
    ("said", "held", "text"),
    [
        ((Status.NO, Status.NO, Status.NO), (11, 15, 18), "holds 11 to 18 users, by seed (measured; 11 with"),
        (
            (Status.NO, Status.NO, Status.YES),
            (11, 14, 15),
            "holds 11 to 15 users or more, by seed (measured; 11",
        ),
        ((Status.NO, Status.NO, Status.NO), (11, 11, 11), "holds about 11 users (measured; 12 do not keep"),
    ],
)
def test_where_seeds_hold_different_numbers_of_users_the_range_is_said(
    said: tuple[Status, ...], held: tuple[int, ...], text: str
) -> None:
    """Each question gave the figure of another seed, so that the answers did not agree."""
    seeds = dict(zip((42, 43, 44), said, strict=True))
    reply = Reply(Status.NO, 20, Config(), built(), Bracket(11, 12, True), None, None, None, by_seed=seeds)
    reply = replace(reply, held_by_seed=dict(zip(seeds, held, strict=True)))
    assert text in " ".join(lines(reply))


def test_what_was_asked_with_names_the_seed_whose_figures_are_printed() -> None:
    result = built().model_copy(update={"seed": 43})
    reply = Reply(Status.NO, 5, Config(), result, Bracket(2, 3, True), None, None, None)
    (other,) = (line for line in lines(reply) if line.startswith("Asked with: "))
    assert other.endswith("seed 42 (the figures are of seed 43).")
    (same,) = (line for line in lines(replace(reply, result=built())) if line.startswith("Asked with: "))
    assert same.endswith("seed 42.")


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
    mine = "holds at least 4 users that seed 42 draws (measured); at least 8 such users by the model."
    assert held[0].endswith(mine), "of others it said no"
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
    assert text[2] == f"{alone}no with seed 43 (no batch user), yes with seed 44 (no interactive user)."
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
