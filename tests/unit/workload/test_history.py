"""Turns share the history of their conversation: a long one takes memory as they do, not as their square."""

import json
import tracemalloc
from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.workload.history import past
from kvspill.workload.registry import make_workload
from kvspill.world import World

TURNS = 4_000


def recorded(kind: str) -> str:
    """A recording of one conversation."""
    if kind == "weka":
        return json.dumps({"requests": [{"t": number, "in": 5, "out": 1} for number in range(TURNS)]})
    if kind == "burstgpt":
        rows = (f"{number},s,5,1" for number in range(TURNS))
        return "\n".join(("Timestamp,Session ID,Request tokens,Response tokens", *rows))
    if kind == "bailian":
        asked = {"input_length": 5, "output_length": 1}
        chats = ({"chat_id": n, "parent_chat_id": n - 1, "timestamp": n, **asked} for n in range(TURNS))
        return "\n".join(map(json.dumps, chats))
    turn = [{"from": "human", "value": "why"}, {"from": "gpt", "value": "because"}]
    return json.dumps([{"conversations": turn * TURNS}])


@pytest.mark.parametrize("kind", ["bailian", "burstgpt", "sharegpt", "weka"])
def test_a_long_conversation_takes_memory_as_its_turns_do(tmp_path: Path, kind: str) -> None:
    """A session of 40,000 requests, a file of 1 MB, took more than 6 GB."""
    path = tmp_path / "recording.jsonl"
    path.write_text(recorded(kind))
    given = {"dataset_path": str(path)} if kind == "sharegpt" else {"trace": f"{kind}:{path}"}
    config = Config(model="tiny-1b", num_users=1, replay_cycles=1, **given)
    tracemalloc.start()
    try:
        found = list(make_workload(config, World(1, lambda: 0), 1 << 30).session(0))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [request.turn for request in found] == list(range(TURNS))
    assert all(len(request.history_tokens) == request.turn for request in found)
    assert peak_bytes < 20_000_000


def test_what_is_added_later_is_not_seen() -> None:
    values = [10, 20]
    seen = past(values)
    values.append(30)
    assert (tuple(seen), len(seen), seen[1], seen[-1], seen[:1]) == ((10, 20), 2, 20, 20, [10])
    assert seen == (10, 20)
    assert seen != past(values)
    assert {seen, (10, 20)} == {(10, 20)}
    with pytest.raises(IndexError):
        seen[len(seen)]
    assert not past([])
