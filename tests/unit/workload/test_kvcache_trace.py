"""Traces of KVCache.AI's simulator: block sizes from the rows, ids that count behind those before them."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.errors import UsageError
from kvspill.workload.traces.files import RowLog
from kvspill.workload.traces.kvcache import rows


def read(tmp_path: Path, *records: dict[str, Any]) -> list[Any]:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return list(rows(path, "--trace", RowLog()))


def row(ids: list[Any], **more: Any) -> dict[str, Any]:
    return {"block_size": 16, "input_length": 16 * len(ids), "hash_ids": ids, **more}


def test_equal_beginnings_have_equal_keys_and_an_id_elsewhere_is_another_block(tmp_path: Path) -> None:
    first, second, third = read(tmp_path, row([1, 2, 3]), row([1, 2, 4]), row([2, 3]))
    assert first.blocks[:2] == second.blocks[:2]
    assert first.blocks[2] != second.blocks[2]
    assert not {*third.blocks} & {*first.blocks}


def test_an_id_may_come_again_in_a_row(tmp_path: Path) -> None:
    (found,) = read(tmp_path, row([7, 7, 7]))
    assert len({*found.blocks}) == 3


def test_times_and_answers_are_optional(tmp_path: Path) -> None:
    plain, timed = read(tmp_path, row(["a"]), row(["a"], timestamp=5, output_length=9))
    assert (plain.at_ns, plain.generate_tokens, plain.block_tokens) == (0, 0, 16)
    assert (timed.at_ns, timed.generate_tokens) == (5_000_000, 9)
    assert plain.blocks == timed.blocks


def test_a_row_without_a_time_comes_with_the_one_before_it(tmp_path: Path) -> None:
    found = read(tmp_path, row([1], timestamp=5), row([2]), row([3], timestamp=9), row([4]))
    assert [item.at_ns for item in found] == [5_000_000, 5_000_000, 9_000_000, 9_000_000]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"input_length": 5, "hash_ids": [1]}, "block_size is missing"),
        ({"block_size": 16, "input_length": 5}, "hash_ids is missing"),
        ({"block_size": 0, "input_length": 5, "hash_ids": [1]}, "block_size 0 is not within"),
        ({"block_size": 32, "input_length": 5, "hash_ids": [1]}, "differs from the 16 of the rows before"),
        ({"block_size": 16, "input_length": 5, "hash_ids": [[1]]}, "hash_ids is not a list of block ids"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, record: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(tmp_path, row([1]), record)
