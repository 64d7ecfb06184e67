"""Warnings: one object each, from which every list of codes elsewhere comes."""

import re
from pathlib import Path

import pytest

from kvspill.report.console import render_summary
from kvspill.report.docs import warnings_page
from kvspill.report.html.facts import labelled
from kvspill.report.html.headline import banners, doubts_of_all, headline_rows
from kvspill.result.metrics.metric import Area
from kvspill.result.reading import our_result
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.kind import EVERYTHING, Kind, Severity, Spoils
from kvspill.result.warnings.known import KINDS, noted, that_spoil
from unit.result import sample


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_warning_says_what_to_do(kind: Kind) -> None:
    assert kind.message
    assert kind.remedy
    assert "_" not in kind.title
    assert len(kind.title) <= 50
    assert kind.title[-1] != "."
    assert not (kind.is_fault and kind.severity is not Severity.INVALID)
    assert kind.severity is not Severity.INVALID or kind.touches == EVERYTHING


def test_a_fault_spoils_every_use() -> None:
    faults = [kind for kind in KINDS.values() if kind.is_fault]
    assert faults
    for use in (Spoils.RANK, Spoils.COMPARISON, Spoils.SUBMISSION, Spoils.ADVICE):
        assert set(faults) <= set(that_spoil(use, KINDS))


def test_a_warning_in_a_file_has_its_severity_and_what_it_touches() -> None:
    late = sample.facts(lateness_ns=(50_000_000,) * 100)
    (item,) = [row for row in sample.result(run=late)["warnings"] if row["code"] == "late_arrivals"]
    assert (item["severity"], item["touches"]) == ("note", ["latency"])


def test_warnings_of_older_files_get_their_severity() -> None:
    document = {**sample.result(), "schema_version": 1}
    del document["faulty"]
    document["warnings"] = [{"code": "page_cache", "message": "m", "remedy": "r"}]
    (item,) = our_result(document, Path("r.json")).warnings
    assert (item.severity, item.touches) == ("serious", ["storage"])


def test_the_code_of_a_plug_in_is_a_note_about_everything() -> None:
    item = noted("of_a_plug_in", "message", "remedy")
    assert item.severity == "note"
    assert item.touches == [area.value for area in Area]


def test_a_new_warning_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    new = Kind("a_new_one", "a new one", "Seen {times} times.", "Do this.", Severity.SERIOUS, (Area.CACHE,))
    monkeypatch.setitem(KINDS, new.code, new)
    result = sample.built(warnings=[new.of(times=3)])
    shown = labelled([("r", result)])
    (cell,) = [row.cells[0] for row in headline_rows(shown) if row.title == "Cache hit rate"]
    assert "a_new_one" in cell.doubts
    assert "a_new_one" not in doubts_of_all(result)
    assert [banner.message for banner in banners(shown) if banner.code == "a_new_one"] == ["Seen 3 times."]


@pytest.mark.parametrize("verbose", [False, True])
def test_a_person_never_reads_the_code_of_a_warning(verbose: bool) -> None:
    """Strangers took `capacity_bound` and "1 note" for a language of ours."""
    given = [noted(code, f"What {number} says.", "Do it.") for number, code in enumerate(KINDS)]
    text = render_summary(sample.built(warnings=given), verbose=verbose)
    assert not [code for code in KINDS if "_" in code and code in text]
    assert not re.search(r"\bnotes?\b", text)
    assert ("Bear in mind: What" in text) == verbose


def short_of(*given: Caution) -> str:
    return render_summary(sample.built().model_copy(update={"warnings": list(given)}), verbose=False)


def test_what_is_to_be_borne_in_mind_stands_in_the_short_form_with_its_size() -> None:
    text = short_of(
        noted("event_loop_lag", "Timers fired 12 ms late (p99); more of that. And that.", "r."),
        noted("of_a_plug_in", "3 of 4 were odd.", "r."),
    )
    where = "(their remedies: --verbose, or the page of `kvspill report`)"
    assert f"\nBear in mind {where}:\n- Timers fired 12 ms late (p99).\n- 3 of 4 were odd.\n" in text


def test_a_long_warning_is_cut_at_a_clause_in_the_short_form() -> None:
    long = noted("event_loop_lag", "Timers fired 12 ms late (p99): " + "and so on " * 20 + ".", "r.")
    assert "\n- Timers fired 12 ms late (p99).\n" in short_of(long)
    endless = noted("event_loop_lag", "and so on " * 20, "r.")
    assert "\n- kvspill itself was late.\n" in short_of(endless)


def test_what_the_figures_above_say_already_is_not_said_again() -> None:
    assert "still waiting" not in short_of(noted("unfinished", "9 requests were still waiting.", "r."))


def test_a_run_too_short_says_what_that_leaves_open_and_why() -> None:
    known = noted("too_short", "The rate is known to ±22% only; 1,500 s would be enough. Its speed.", "r.")
    assert "- Too short to tell whether throughput was steady; 1,500 s would be enough.\n" in short_of(known)
    text = " ".join(short_of(noted("too_short", "Few seconds had much activity.", "r.")).split())
    assert "- Too short to tell whether throughput was steady: few seconds had much activity." in text


def test_notes_for_which_the_screen_has_no_room_are_named_by_title() -> None:
    given = [noted("of_a_plug_in", f"Figure {number}.", "r.") for number in range(3)]
    text = short_of(*given, noted("event_loop_lag", "m.", "r."), noted("capacity_bound", "m.", "r."))
    assert "- Figure 2.\n" in text
    more = "- 2 more: kvspill itself was late; entries were dropped for lack of space."
    assert more in " ".join(text.split())


def test_the_page_of_warnings_is_the_one_that_the_code_makes() -> None:
    page = Path(__file__).parents[3] / "docs" / "warnings.md"
    assert page.read_text() == warnings_page(), (
        "run: python -m kvspill.report.docs warnings > docs/warnings.md"
    )
