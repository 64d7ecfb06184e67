"""The load that all targets of `kvspill suite backends` get: what was given, else what is usual."""

from typing import Any

import pytest

from kvspill.cli.backends import _parser, _rows


def load(words: str) -> dict[str, Any]:
    rows = _rows(_parser("kvspill suite backends").parse_args(f"--target . --target .. {words}".split()))
    return dict(rows[0].settings)


@pytest.mark.parametrize(
    ("words", "model", "requests"),
    [
        ("", "llama3.1-8b", 48),
        ("--quick", "tiny-1b", 16),
        ("--quick --model llama3.1-8b --max-requests 48", "llama3.1-8b", 48),
        ("--quick --model llama3.1-8b --set model=mistral-7b", "mistral-7b", 16),
    ],
)
def test_what_is_given_stands_against_quick(words: str, model: str, requests: int) -> None:
    found = load(words)
    assert (found["model"], found["max_requests"]) == (model, requests)
