"""The shape of the source: a file fits on a few screens and says what it is responsible for."""

import ast
from functools import cache
from pathlib import Path

import kvspill

ROOT = Path(kvspill.__file__).parent
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


@cache
def sources() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def test_no_file_is_longer_than_a_few_screens() -> None:
    lines = {name: text.count("\n") for name, text in sources().items()}
    assert len(lines) > 300
    assert {name: count for name, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{name}: {node.name}": lines
        for name, text in sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_the_first_line_of_a_file_says_what_it_is_responsible_for() -> None:
    silent = [name for name, text in sources().items() if text and not text.startswith('"""')]
    assert silent == []
