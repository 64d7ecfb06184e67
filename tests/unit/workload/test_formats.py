"""Claims about each trace format: what its rows mean, checked by hand and on real data where it is here."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.plugins import Kind, find_plugins
from kvspill.records import NS_PER_SEC, Request
from kvspill.workload import samples
from kvspill.workload.registry import make_workload
from kvspill.workload.samples import make_samples
from kvspill.world import World

DATA = Path(__file__).parents[4] / "shared" / "data"
SAMPLES = {name: plugin.sample for name, plugin in find_plugins(Kind.TRACE).plugins.items() if plugin.sample}
TIB = 1 << 40
BYTES_PER_TOKEN = 131_072


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return path


def asked(kind: str, path: object, **changes: Any) -> list[Request]:
    config = Config(trace=f"{kind}:{path}", **changes)
    return list(make_workload(config, World(config.seed), 1 << 60).session(0))


def test_the_samples_are_what_their_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_samples, "__file__", str(tmp_path / "make_samples.py"))
    make_samples.main()
    shipped = Path(str(samples.__file__)).parent
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert {path.parts[0] for path in made} == {str(path.name) for path in SAMPLES.values()}
    for path in made:
        assert (tmp_path / path).read_text() == (shipped / path).read_text()


def test_the_conversation_sample_has_500_conversations_in_less_than_a_megabyte_and_a_half() -> None:
    path = SAMPLES["sharegpt"]
    assert path.stat().st_size < 1_500_000
    assert len(json.loads(path.read_text())) == 500


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_word_sample_names_our_own_recording(kind: str) -> None:
    assert len(asked(kind, "sample", num_users=1)) >= 20


def test_mooncake_counts_of_the_real_trace() -> None:
    """The figures of the conversation trace: input_length for entries, 512 tokens for every listed block."""
    found = asked("mooncake", real("mooncake/conversation_trace.jsonl"))
    assert len(found) == 12_031
    assert {request.block_tokens for request in found} == {512}
    assert found[-1].intended_ns == 3_536_999 * 1_000_000
    reads = [
        request.context_tokens * (1 + -(-request.generate_tokens // 32)) * BYTES_PER_TOKEN / TIB
        for request in found
    ]
    short = [read for request, read in zip(found, reads, strict=True) if request.context_tokens < 10_000]
    assert sum(reads) == pytest.approx(223.4, abs=0.05)
    assert sum(short) == pytest.approx(41.53, abs=0.005)
    seen: set[str] = set()
    loaded = 0
    for request in found:
        known = [block in seen for block in request.blocks]
        loaded += next((place for place, hit in enumerate(known) if not hit), len(known))
        seen.update(request.blocks)
    block = 512 * BYTES_PER_TOKEN / TIB
    assert (loaded * block, len(seen) * block) == pytest.approx((6.452, 11.157), abs=0.001)


def test_azure_counts_of_the_real_trace() -> None:
    path = real("azure/AzureLLMInferenceTrace_conv.csv")
    found = asked("azure", path)
    columns = [line.split(",") for line in path.read_text().splitlines()[1:]]
    assert len(found) == len(columns) == 19_366
    assert Counter(request.context_tokens for request in found) == Counter(int(row[1]) for row in columns)
    assert sum(request.generate_tokens for request in found) == sum(int(row[2]) for row in columns)
    # 18:15:46.6805900 to 19:14:08.4025270
    assert found[-1].intended_ns / NS_PER_SEC == pytest.approx(3_501.72, abs=0.01)


def test_weka_counts_of_the_real_sessions() -> None:
    directory = real("weka")
    sessions = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    found = asked("weka", directory)
    assert len(found) == sum(len(session["requests"]) for session in sessions)
    whole = sum(session["totals"]["combined_tokens"]["input"] for session in sessions)
    assert sum(request.context_tokens for request in found) == whole
    blocks = {block for request in found for block in request.blocks}
    listed = [{block for entry in s["requests"] for block in entry["hash_ids"]} for s in sessions]
    assert len(blocks) == sum(map(len, listed))


def session(requests: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": requests, **more}


def entry(t: float, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": 64 * len(ids), "out": 5, "hash_ids": ids, "api_time": 2.0, **more}


def write(tmp_path: Path, *documents: Any) -> Path:
    for number, document in enumerate(documents):
        text = document if isinstance(document, str) else json.dumps(document)
        (tmp_path / f"s{number}.json").write_text(text)
    return tmp_path


def test_sub_agents_are_conversations_of_their_session_in_the_order_of_times(tmp_path: Path) -> None:
    inner: dict[str, Any] = {
        "t": 1.0,
        "type": "subagent",
        "requests": [entry(1.5, [1, 9]), entry(4.0, [1, 9, 10])],
    }
    deeper = {"t": 1.6, "type": "subagent", "requests": [entry(1.7, [11])]}
    inner["requests"].append(deeper)
    path = write(tmp_path, session([entry(0, [1]), inner, entry(3.0, [1, 2])]))
    found = asked("weka", path)
    assert [(request.conversation, request.turn) for request in found] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 1),
        (1, 1),
    ]
    assert [request.intended_ns / NS_PER_SEC for request in found] == [0, 1.5, 1.7, 3.0, 4.0]
    assert found[4].blocks == ("s0:1", "s0:9", "s0:10")
    assert found[4].history_tokens == (128,)


def test_local_block_ids_differ_between_sessions_and_global_ones_do_not(tmp_path: Path) -> None:
    local = asked("weka", write(tmp_path, session([entry(0, [1])]), session([entry(0, [1])])))
    assert [request.blocks for request in local] == [("s0:1",), ("s1:1",)]
    both = [session([entry(0, [1])], hash_id_scope="global") for _ in range(2)]
    assert {request.blocks for request in asked("weka", write(tmp_path, *both))} == {("1",)}


def test_as_many_sessions_as_users_run_at_once_and_the_next_begins_where_one_ends(tmp_path: Path) -> None:
    path = write(tmp_path, *[session([entry(0, [1]), entry(10, [1, 2])]) for _ in range(3)])
    found = asked("weka", path, num_users=2)
    assert [(request.user, request.intended_ns // NS_PER_SEC) for request in found] == [
        (0, 0),
        (1, 0),
        (0, 10),
        (1, 10),
        (2, 12),
        (2, 22),
    ]


def test_closed_users_take_whole_sessions_and_think_as_recorded(tmp_path: Path) -> None:
    calls = [entry(0, [1]), entry(10, [1, 2], think_time=6.0), entry(11, [2], think_time=-1), entry(12, [3])]
    config = Config(trace=f"weka:{write(tmp_path, session(calls), session(calls))}", arrival="closed")
    made = make_workload(config.changed(num_users=2, trace_speedup=2.0), World(1), 1 << 60)
    first, second = made.session(0), made.session(1)
    taken = [next(first), next(second), next(first), next(first), next(first)]
    assert [request.user for request in taken] == [0, 1, 0, 0, 0]
    assert [request.think_ns / NS_PER_SEC for request in taken] == [0, 0, 3.0, 0, 0]


def test_a_broken_request_or_session_is_named_or_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, session([entry(0, [1]), {"t": 1.0, "in": 5}]), "{", session([entry(0, [1])]))
    with pytest.raises(UsageError) as caught:
        asked("weka", path)
    assert str(caught.value) == (
        f"{path / 's0.json'}:1: requests[1]: out is missing; correct that row or give --skip-bad-rows"
    )
    config = Config(trace=f"weka:{path}", skip_bad_rows=True)
    made = make_workload(config, World(1), 1 << 60)
    assert len(list(made.session(0))) == 2
    assert made.facts()["bad_rows_skipped"] == 2


def test_sessions_one_per_line_load_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps(session([entry(0, [1]), entry(1, [1, 2])])) + "\n" for _ in range(3)))
    found = asked("weka", path)
    assert sorted(request.user for request in found) == [0, 0, 1, 1, 2, 2]
    assert all(earlier.intended_ns <= later.intended_ns for earlier, later in pairwise(found))


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no \.json file; name the directory of the sessions"):
        asked("weka", tmp_path)
