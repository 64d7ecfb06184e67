"""Service classes on a page: the answer's verdicts and figures, and none of them left out silently."""

from typing import Any

import pytest

from unit.result import sample

pytest.importorskip("vl_convert")

from kvspill.report.console import render_summary
from kvspill.report.html.figure import Figure
from kvspill.report.html.verdicts import verdict_of
from kvspill.result.schema import Question, Result
from unit.report.html.pages import drawn


def of_class(requests: int, late: int, p95_ms: float | None, verdict: str) -> dict[str, Any]:
    return {
        **{"target_ms": 100.0, "actual_ms": p95_ms, "requests": requests, "violations": late},
        **{"failed": 0, "waiting": 0, "verdict": verdict},
    }


CLASSES = {
    "interactive": of_class(27, 27, None, "no verdict"),
    "responsive": of_class(51, 51, 640.5, "missed"),
    "batch": of_class(400, 4, 181.7, "met"),
}


def answered(answer: str, classes: dict[str, Any]) -> Result:
    """A result with an answer whose classes differ from those of its last window."""
    judged = {"level": 40, "latency": "added", "percentile": 95.0, "windows": 2, "classes": classes}
    question = Question(answer=answer, users=40, sentence="An answer.", helps="", judged=judged)
    return sample.built().model_copy(update={"question": question})


def chart(*results: Result) -> Figure:
    return drawn(*results)["classes"]


def rows_of(figure: Figure, name: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in figure.rows if row[0].endswith(name)]


def test_the_chart_of_several_has_the_verdicts_and_the_percentiles_of_the_answer() -> None:
    found = chart(answered("no", CLASSES), sample.built())
    what = "added by queue and storage, p95 (40 users, 2 windows)"
    assert rows_of(found, ": r0") == [
        ("interactive: r0", what, "0.0%", "not measured", "100", "missed"),
        ("responsive: r0", what, "0.0%", "640.5", "100", "missed"),
        ("batch: r0", what, "99.0%", "181.7", "100", "met"),
    ]


def test_a_class_without_a_verdict_has_a_grey_bar_that_says_so() -> None:
    classes = {
        **CLASSES,
        "interactive": of_class(10, 1, None, "no verdict"),
        "rare": of_class(0, 0, None, "no verdict"),
    }
    found = chart(answered("no", classes), answered("yes", {"batch": CLASSES["batch"]}))
    bars = {row["full"]: row for row in found.spec["data"]["values"]}
    assert bars["interactive: r0"]["series"] == "no verdict"
    assert bars["interactive: r0"]["label"] == "90.0%"
    assert found.spec["padding"]["right"] < 100, "beside long labels a phone has no room for bars"
    assert bars["rare: r0"]["label"] == "no requests"
    colour = found.spec["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(colour["domain"], colour["range"], strict=True))["no verdict"] == "var(--series-8)"
    assert "Grey, without a verdict: interactive of r0 and rare of r0." in found.says


def test_a_run_of_which_no_class_has_a_verdict_is_in_the_chart() -> None:
    few = {"interactive": of_class(10, 10, None, "no verdict")}
    found = chart(answered("no verdict", few), answered("yes", {"batch": CLASSES["batch"]}))
    assert [row["full"] for row in found.spec["data"]["values"]] == ["interactive: r0", "batch: r1"]


def test_a_class_whose_late_requests_decided_a_no_stands_on_its_own_page_as_missed() -> None:
    rows = {row.name: row for row in verdict_of(answered("no", CLASSES)).classes}
    assert (rows["interactive"].state, rows["interactive"].note) == ("missed", "27 requests, 27 of 27 late")
    assert (rows["batch"].state, rows["batch"].actual) == ("met", "181.7 ms")
    text = " ".join(render_summary(answered("no", CLASSES), verbose=False).split())
    assert "interactive - 100 ms 27 missed" in text


def test_few_late_requests_are_no_verdict_where_the_answer_is_none_s11() -> None:
    rows = {row.name: row for row in verdict_of(answered("no verdict", CLASSES)).classes}
    assert rows["interactive"].state == "open"


def test_names_in_a_chart_keep_what_tells_them_apart() -> None:
    from kvspill.report.html.labels import told_apart

    names = ["20261119-180000-tiny-1b", "20261119-181500-tiny-1b", "20261119-193000-tiny-1b"]
    assert list(told_apart(names).values()) == ["180000", "181500", "193000"]
    assert told_apart(["a", "b"]) == {"a": "a", "b": "b"}
    same_end = ["a-very-long-name-of-a-run", "a-very-long-name-of-a-run-2"]
    assert list(told_apart(same_end).values()) == same_end


def test_the_bytes_of_several_results_are_of_dram_and_not_of_cpu() -> None:
    found = drawn(sample.built(), sample.built())["tier-bytes"]
    names = {row[0].partition(":")[0] for row in found.rows}
    assert "DRAM" in names
    assert not names & {"cpu", "CPU", "gpu"}
