"""One thing has one name in every view: steadiness, the memory tier, units."""

import pytest

from kvspill.records import Tier
from kvspill.report.console import render_summary
from kvspill.report.html.prose import checks
from kvspill.report.judged import criterion_name
from kvspill.result.chosen import chosen_note
from kvspill.result.schema import Question
from kvspill.result.warnings.certainty import NOT_STEADY
from kvspill.result.warnings.known import titles
from unit.result.sample import built, facts, tier


@pytest.mark.parametrize(("answer", "tail"), [("no", "; the answer does not rest on that."), (None, None)])
def test_steadiness_is_judged_once_and_in_the_same_words(answer: str | None, tail: str | None) -> None:
    """A page said "not steady" and that the run can't show whether its rates have settled."""
    drifted = NOT_STEADY.of(reason="Drifted: not steady.").model_copy(update={"chosen": True})
    question = None if answer is None else Question(answer=answer, users=3, sentence="No.", helps="")
    changed = {"warnings": [drifted], "question": question}
    note = chosen_note(built().model_copy(update=changed))
    tail = tail or "; --duration 300 tells whether they become so."
    assert note == f"The rates of the 10 s measured were not steady{tail}"
    assert titles([NOT_STEADY.code]) == "throughput was not steady"


def test_every_volume_of_the_tiers_has_its_unit() -> None:
    """A header "limit read GiB written", where two names ran into each other."""
    lines = render_summary(built()).splitlines()
    at = next(number for number, line in enumerate(lines) if "TIER DISTRIBUTION" in line)
    assert lines[at + 1].split() == ["tier", "entries", "used", "limit", "read", "written"]
    assert lines[at + 2].count("GiB") >= 2


def test_the_memory_tier_has_one_name_on_a_page() -> None:
    names = dict(checks(built(run=facts(tiers=(tier(Tier.CPU), tier(Tier.STORAGE))))))
    assert not [name for name in names if name.endswith("law, cpu")]
    assert criterion_name("CPU RAM P95 < 150ms") == "DRAM P95 < 150ms"
