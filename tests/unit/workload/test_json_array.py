"""Claims about reading a JSON array piece by piece: it finds what a whole parse finds, and says where."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.errors import UsageError
from kvspill.workload.traces import json_array
from kvspill.workload.traces.files import RowLog
from kvspill.workload.traces.json_array import array_elements
from kvspill.workload.traces.packed import open_bytes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "array.json"
    path.write_text(text, encoding="utf-8")
    return path


def elements(path: Path) -> list[tuple[int, str]]:
    with open_bytes(path, "--x") as file:
        return list(array_elements(file, path, "--x", RowLog()))


@given(
    values=st.lists(VALUES, max_size=6),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_any_array_in_chunks_of_any_size_has_the_elements_of_a_whole_parse(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    chunk: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    path = write(tmp_path_factory.mktemp("a"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "CHUNK_BYTES", chunk)
        found = elements(path)
    assert [json.loads(element) for _line, element in found] == values
    lines = text.split("\n")
    assert all(element.split("\n")[0] in lines[line - 1] for line, element in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "--x {path}: is not a JSON array of conversations; check the file"),
        ("", "--x {path}: is not a JSON array of conversations; check the file"),
        ("[1,\n2", "{path}:2: the file ends inside the array; fetch it again or close it"),
        ('[\n"abc', "{path}:2: the file ends inside the array; fetch it again or close it"),
    ],
)
def test_what_is_no_whole_array_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        elements(path)
    assert str(caught.value) == message.format(path=path)


def test_an_element_without_end_is_refused_before_it_takes_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "ELEMENT_CHARS_MAX", 1000)
    monkeypatch.setattr(json_array, "CHUNK_BYTES", 100)
    path = write(tmp_path, '[{"a": 1},\n{"b": "' + "x" * 5000 + '"}]')
    with pytest.raises(UsageError, match=r"array\.json:2: an element is longer"):
        elements(path)
