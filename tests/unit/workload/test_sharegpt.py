"""Claims about recorded conversations: which turns they have, who holds them, and how tokens are counted."""

import json
import sys
import types
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import Request
from kvspill.workload.registry import make_workload
from kvspill.workload.tokens import make_counter
from kvspill.workload.traces.sharegpt import ShareGptWorkload
from kvspill.world import World


def talk(*texts: str, **more: Any) -> dict[str, Any]:
    """A conversation in which human and model take turns."""
    messages = [{"from": "gpt" if place % 2 else "human", "value": text} for place, text in enumerate(texts)]
    return {"id": "x", "conversations": messages, **more}


def write(tmp_path: Path, entries: list[Any], name: str = "s.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(entries, indent=1))
    return path


def workload(path: Path, **changes: Any) -> ShareGptWorkload:
    estimate = {"token_counter": "estimate"}
    config = Config(**{"dataset_path": str(path), "sharegpt": estimate, "num_users": 1, **changes})
    made = make_workload(config, World(config.seed), 1 << 60)
    assert isinstance(made, ShareGptWorkload)
    return made


def turns(requests: list[Request]) -> list[tuple[int, int, int, int]]:
    return [
        (request.conversation, request.turn, request.context_tokens, request.generate_tokens)
        for request in requests
    ]


def test_a_message_and_its_answer_are_a_turn_and_the_context_is_the_message_alone(tmp_path: Path) -> None:
    path = write(tmp_path, [talk("a" * 40, "b" * 80, "c" * 400, "d" * 4, "e" * 40), talk("f" * 12, "g" * 8)])
    found = list(workload(path).session(0))
    assert turns(found) == [(0, 0, 10, 20), (0, 1, 100, 1), (1, 0, 3, 2)]
    assert [request.history_tokens for request in found] == [(), (10,), ()]
    assert [request.history_answers for request in found] == [(), (20,), ()]


def test_messages_that_are_no_pair_are_left_out(tmp_path: Path) -> None:
    odd = {
        "conversations": [
            {"from": "system", "value": "s" * 40},
            {"from": "gpt", "value": "hello there"},
            {"from": "human", "value": "h" * 16},
            {"from": "human", "value": "i" * 20},
            {"from": "gpt", "value": "j" * 24},
        ]
    }
    path = write(tmp_path, [odd, {"conversations": []}, talk("open question")])
    replayed = workload(path)
    assert turns(list(replayed.session(0))) == [(0, 0, 5, 6)]
    assert replayed.facts()["empty_rows"] == 2


def test_long_texts_count_as_the_longest_allowed_and_empty_ones_as_one_token(tmp_path: Path) -> None:
    path = write(tmp_path, [talk("a" * 100_000, "b" * 100_000, "", "")])
    assert turns(list(workload(path).session(0))) == [(0, 0, 16_384, 2_048), (0, 1, 1, 1)]


def test_of_n_users_the_nth_holds_the_nth_conversation_and_every_nth_from_there(tmp_path: Path) -> None:
    path = write(tmp_path, [talk("a" * 4 * number, "b" * 8) for number in range(1, 8)])
    replayed = workload(path, num_users=3)
    held = [[request.context_tokens for request in replayed.session(user)] for user in range(3)]
    assert held == [[1, 4, 7], [2, 5], [3, 6]]
    late = workload(path, num_users=3)
    assert [[request.context_tokens for request in late.session(user)] for user in (2, 0, 1)] == [
        held[2],
        held[0],
        held[1],
    ]


def test_only_the_first_conversations_are_taken_and_passes_repeat_them(tmp_path: Path) -> None:
    path = write(tmp_path, [talk("a" * 4 * number, "b" * 8) for number in range(1, 8)])
    assert len(list(workload(path, max_conversations=3).session(0))) == 3
    twice = list(workload(path, max_conversations=3, replay_cycles=2).session(0))
    assert [request.context_tokens for request in twice] == [1, 2, 3, 1, 2, 3]
    assert [request.conversation for request in twice] == [0, 1, 2, 3, 4, 5]
    assert len(list(islice(workload(path, duration=60).session(0), 50))) == 50


def test_users_think_as_chatbot_users_do_and_keep_their_class(tmp_path: Path) -> None:
    """L5"""
    path = write(tmp_path, [talk(*["some text"] * 20)] * 40)
    replayed = workload(path, num_users=40, duration=60)
    for user in range(40):
        found = list(islice(replayed.session(user), 30))
        pauses = [request.think_ns / 1e9 for request in found]
        assert min(pauses) >= 0.1 * 0.8
        assert max(pauses) <= 0.5 * 1.2
        assert max(pauses) / min(pauses) <= 1.5 + 1e-6
        gaps = [later.intended_ns - earlier.intended_ns for earlier, later in pairwise(found)]
        assert gaps == [request.think_ns for request in found[:-1]]
        assert len({request.qos for request in found}) == 1
        assert {request.persona for request in found} == {"chatbot"}


def test_no_prompt_and_no_retrieval_is_added_to_a_conversation(tmp_path: Path) -> None:
    """L5"""
    found = islice(workload(write(tmp_path, [talk("a", "b")]), duration=60).session(0), 200)
    assert all(request.prefix is None and request.opening is None and not request.chunks for request in found)


def test_single_turns_are_the_first_ones(tmp_path: Path) -> None:
    path = write(tmp_path, [talk("a" * 8, "b", "c" * 40, "d")])
    assert turns(list(workload(path, disable_multi_turn=True).session(0))) == [(0, 0, 2, 1)]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"id": "x"}, "conversations is missing or not a list"),
        ({"conversations": "x"}, "conversations is missing or not a list"),
        ({"conversations": ["a", "b"]}, "a message is not an object with keys"),
        (
            {"conversations": [{"from": "human", "value": 3}, {"from": "gpt", "value": "x"}]},
            "the value of a message is not a text",
        ),
        (7, "holds a int, not an object with keys"),
    ],
)
def test_a_broken_conversation_is_named_by_line_or_skipped_and_counted(
    tmp_path: Path, entry: Any, reason: str
) -> None:
    path = tmp_path / "s.json"
    good = json.dumps(talk("a", "b"))
    path.write_text(f"[\n{good},\n\n{json.dumps(entry)},\n{good}]")
    with pytest.raises(UsageError) as caught:
        list(workload(path).session(0))
    assert str(caught.value) == f"{path}:4: {reason}; correct that row or give --skip-bad-rows"
    replayed = workload(path, skip_bad_rows=True)
    assert len(list(replayed.session(0))) == 2
    assert replayed.facts()["bad_rows_skipped"] == 1


def test_conversations_one_per_line_load_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(talk("a" * 8, "b" * 8)) + "\n" for _ in range(3)))
    assert len(list(workload(path).session(0))) == 3


def test_a_file_without_an_answer_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [talk("hello")])
    with pytest.raises(UsageError, match="holds no conversation with an answer; check the file"):
        workload(path)


def test_the_estimate_says_what_it_is_and_can_be_changed() -> None:
    counter = make_counter("estimate", 2.5)
    assert counter.name == "estimate of 2.5 characters per token"
    assert [counter.count(text) for text in ("", "abcde", "a" * 24)] == [1, 2, 9]


def fake_tiktoken(get_encoding: Any) -> types.ModuleType:
    module = types.ModuleType("tiktoken")
    module.get_encoding = get_encoding  # type: ignore[attr-defined]
    return module


def test_tiktoken_counts_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Encoding:
        def encode_ordinary(self, text: str) -> list[str]:
            return text.split()

    monkeypatch.setitem(sys.modules, "tiktoken", fake_tiktoken(lambda _name: Encoding()))
    counter = make_counter("auto", 4)
    assert counter.name == "tiktoken cl100k_base"
    assert [counter.count(text) for text in ("", "two words")] == [1, 2]


def test_tiktoken_without_its_tables_counts_as_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(_name: str) -> None:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "tiktoken", fake_tiktoken(offline))
    assert make_counter("auto", 4).name == "estimate of 4 characters per token"
    with pytest.raises(UsageError, match=r"has no cl100k_base tables here \(ConnectionError\); install it"):
        make_counter("tiktoken", 4)
