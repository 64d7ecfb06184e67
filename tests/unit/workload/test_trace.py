"""Claims about replaying rows: order, speed, passes, conversations, and who takes what."""

import json
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import NS_PER_SEC, Request
from kvspill.workload.registry import make_workload
from kvspill.workload.traces import replay as trace
from kvspill.workload.traces.files import RowLog
from kvspill.workload.traces.replay import Row, in_order
from kvspill.world import World

UNLIMITED = 1 << 60


def mooncake(tmp_path: Path, times_ms: list[int], **more: Any) -> Path:
    rows = [
        {"timestamp": at, "input_length": 100 + number, "output_length": 10, "hash_ids": [number]}
        for number, at in enumerate(times_ms)
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({**row, **more}) + "\n" for row in rows))
    return path


def workload(path: Path, kind: str = "mooncake", **changes: Any) -> Any:
    config = Config(trace=f"{kind}:{path}", **changes)
    return make_workload(config, World(config.seed), UNLIMITED)


def asked(path: Path, kind: str = "mooncake", **changes: Any) -> list[Request]:
    return list(workload(path, kind, **changes).session(0))


def test_times_begin_at_the_first_row_and_can_be_sped_up(tmp_path: Path) -> None:
    path = mooncake(tmp_path, [5_000, 6_000, 9_000])
    assert [request.intended_ns for request in asked(path)] == [0, NS_PER_SEC, 4 * NS_PER_SEC]
    faster = asked(path, trace_speedup=4.0)
    assert [request.intended_ns for request in faster] == [0, NS_PER_SEC // 4, NS_PER_SEC]


def test_each_row_is_a_conversation_of_its_own_and_nothing_is_added_to_it(tmp_path: Path) -> None:
    """L5"""
    found = asked(mooncake(tmp_path, [0, 1, 2]))
    assert [(request.user, request.turn, request.history_tokens) for request in found] == [
        (0, 0, ()),
        (1, 0, ()),
        (2, 0, ()),
    ]
    assert all(request.prefix is None and not request.chunks for request in found)
    assert [request.blocks for request in found] == [("0",), ("1",), ("2",)]


def test_a_second_pass_follows_after_a_mean_gap_with_new_users_and_the_same_blocks(tmp_path: Path) -> None:
    found = asked(mooncake(tmp_path, [0, 1_000, 4_000]), replay_cycles=2)
    assert [request.intended_ns // NS_PER_SEC for request in found] == [0, 1, 4, 6, 7, 10]
    assert [request.user for request in found] == [0, 1, 2, 3, 4, 5]
    assert [request.blocks for request in found[:3]] == [request.blocks for request in found[3:]]


@pytest.mark.parametrize(("times_ms", "speedup"), [([7], 1.0), ([7, 7], 1.0), ([0, 1_000, 4_000], 1e12)])
def test_a_recording_without_a_span_does_not_repeat_at_one_moment_for_ever(
    tmp_path: Path, times_ms: Any, speedup: float
) -> None:
    requests = workload(mooncake(tmp_path, times_ms), duration=60, trace_speedup=speedup).session(0)
    within = list(takewhile(lambda request: request.intended_ns < NS_PER_SEC, islice(requests, 10_000)))
    assert len(within) == 100 * len(times_ms)


def test_without_a_number_of_passes_the_load_decides(tmp_path: Path) -> None:
    path = mooncake(tmp_path, [0, 10, 20])
    assert len(asked(path)) == 3
    assert len(list(islice(workload(path, duration=60).session(0), 100))) == 100
    assert len(list(islice(workload(path, max_requests=50).session(0), 100))) == 100
    assert len(list(islice(workload(path, duration=60, replay_cycles=1).session(0), 100))) == 3


def test_closed_users_share_the_rows_in_the_order_of_the_file_whatever_the_times(tmp_path: Path) -> None:
    shared = workload(mooncake(tmp_path, [9_000, 5, 7]), arrival="closed", num_users=2)
    first, second = shared.session(0), shared.session(1)
    taken = [next(first), next(second), next(second)]
    assert [request.user for request in taken] == [0, 1, 2]
    assert [request.context_tokens for request in taken] == [100, 101, 102]
    assert all(request.intended_ns == 0 and request.think_ns == 0 for request in taken)
    assert next(first, None) is None


@given(st.lists(st.integers(0, 10**6), max_size=60), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_rows_come_by_time_or_the_file_is_refused(times: list[int], held: int) -> None:
    rows = [Row(at, 1, 1) for at in times]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "REORDER_ROWS", held)
        try:
            found = [row.at_ns for row in in_order(iter(rows), Path("t"), RowLog())]
        except UsageError:
            # Some row stands behind more than `held` later ones.
            assert any(sum(later > at for later in times[:place]) > held for place, at in enumerate(times))
        else:
            assert found == sorted(times)


def test_rows_too_far_out_of_order_are_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "REORDER_ROWS", 2)
    path = mooncake(tmp_path, [10, 11, 12, 13, 0])
    path.write_text("\n" + path.read_text())
    with pytest.raises(UsageError) as caught:
        asked(path)
    assert str(caught.value) == (
        f"{path}:6: the row is more than 2 rows out of order by its time; "
        "sort the file by time, or give --arrival closed to ignore the times"
    )
    assert len(list(workload(path, arrival="closed").session(0))) == 5


def test_a_file_without_a_request_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n\n")
    with pytest.raises(
        UsageError, match="holds no request of a trace of the format mooncake; check the file"
    ):
        workload(path)


def test_sessions_become_conversations_with_their_history(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text(
        "Timestamp,Session ID,Request tokens,Response tokens\n"
        "1,a,10,1\n2,,20,2\n3,b,30,3\n4,a,40,4\n5,a,50,5\n"
    )
    found = asked(path, "burstgpt")
    assert [(request.user, request.turn) for request in found] == [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2)]
    assert found[4].history_tokens == (10, 40)
    assert found[4].history_answers == (1, 4)


def bailian(tmp_path: Path, chats: list[tuple[int, int]]) -> Path:
    path = tmp_path / "c.jsonl"
    lines = [
        {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": at / 2,
            "input_length": 16 * (at + 1),
            "output_length": 4,
            "type": "text",
            "turn": 1,
            "hash_ids": list(range(at + 1)),
        }
        for at, (chat, parent) in enumerate(chats)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_chat_goes_on_from_its_parent_once_and_orphans_begin_anew(tmp_path: Path) -> None:
    path = bailian(tmp_path, [(7, -1), (8, 7), (9, 7), (10, 8), (11, 99)])
    replayed = workload(path, "bailian")
    found = list(replayed.session(0))
    assert [(request.user, request.turn) for request in found] == [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0)]
    assert replayed.facts()["orphan_rows"] == 2
    assert found[3].blocks == ("0", "1", "2", "3")
    assert found[3].block_tokens == 16


def test_conversations_unheard_of_for_long_are_forgotten_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "OPEN_CONVERSATIONS_MAX", 2)
    replayed = workload(bailian(tmp_path, [(1, -1), (2, -1), (3, -1), (4, 1), (5, 3)]), "bailian")
    assert [(request.user, request.turn) for request in replayed.session(0)][3:] == [(3, 0), (2, 1)]
    assert replayed.facts()["orphan_rows"] == 1


def test_the_class_belongs_to_the_user_and_follows_the_shares(tmp_path: Path) -> None:
    """L1: QoS belongs to the user."""
    found = asked(mooncake(tmp_path, list(range(4000))))
    shares = [sum(request.qos == qos for request in found) / len(found) for qos in (0, 1, 2)]
    assert shares == pytest.approx([0.15, 0.35, 0.50], abs=0.03)
    again = asked(mooncake(tmp_path, list(range(4000))))
    assert [request.qos for request in found] == [request.qos for request in again]
    other = asked(mooncake(tmp_path, list(range(4000))), seed=7)
    assert [request.qos for request in found] != [request.qos for request in other]
