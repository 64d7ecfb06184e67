"""What `kvspill can` answered stands in its result, and every view of that result says the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.report.html.facts import Labelled
from kvspill.report.html.page import page_of
from kvspill.report.short import short_summary
from kvspill.result.reading import load_result
from kvspill.result.schema import Result

FEW = ("--model", "tiny-1b", "--users", "5", "--simulate", "--quiet", "--json")


def asked(
    folder: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any], Result]:
    path = folder / "answer.json"
    code = main(["can", *FEW, *words, "--output", str(path)])
    return code, json.loads(capsys.readouterr().out), load_result(path)


def first_words(result: Result) -> tuple[str, str]:
    """The console's first line, and the page from its verdict on."""
    page = page_of([Labelled("answer", result)])
    return str(next(iter(short_summary(result)))), page[page.index("<main>") :]


@pytest.mark.parametrize(("target", "code"), [("1000", 0), ("1", 3)])
def test_the_page_and_the_summary_begin_with_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, code: int
) -> None:
    found_code, found, result = asked(tmp_path, capsys, "--slo-target-ms", target)
    assert found_code == code
    line, page = first_words(result)
    sentence = found["text"][0]
    assert line == sentence
    assert page.index(sentence) < page.index("banner")
    assert "No verdict:" not in page
    assert "NO VERDICT" not in page
    assert result.question is not None
    assert result.question.answer == found["answer"]
    assert result.question.helps == found["helps"]


def test_a_class_without_requests_is_named_as_not_judged_s11(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, result = asked(tmp_path, capsys)
    assert (code, found["not_judged"], found["concluded"]) == (0, {"interactive": 0}, True)
    assert "no_verdict" not in found["warnings"]
    assert "not_judged" in found["warnings"]
    assert "keep the latency target of responsive and batch on" in found["text"][0]
    text = " ".join(found["text"])
    assert "interactive: 0 requests, not judged (a verdict needs 50)." in text
    assert "interactive 50.00 ms (not judged)" in text
    _line, page = first_words(result)
    assert "interactive: 0 requests, not judged" in page
