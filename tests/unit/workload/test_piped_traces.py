"""A recording that comes through a pipe is read whole, once; what would need it again is said."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvspill import inputs
from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import Request
from kvspill.workload.registry import make_workload
from kvspill.workload.traces.format import SAMPLES
from kvspill.world import World

Piped = Callable[[bytes], str]


@pytest.fixture
def piped(request: pytest.FixtureRequest) -> Piped:
    """A function that gives the path of a pipe through which these bytes come."""

    def pipe(data: bytes) -> str:
        read_end, write_end = os.pipe()

        def write() -> None:
            with open(write_end, "wb") as file:
                file.write(data)

        threading.Thread(target=write, daemon=True).start()
        request.addfinalizer(lambda: os.close(read_end))
        return f"/dev/fd/{read_end}"

    return pipe


def requests(config: Config) -> list[Request]:
    workload = make_workload(config, World(1, lambda: 0), 1 << 30)
    return [request for user in range(config.num_users) for request in workload.session(user)]


@pytest.mark.parametrize("by_line", [True, False])
def test_no_conversation_of_a_pipe_is_lost(piped: Piped, by_line: bool) -> None:
    """Those in its first bytes were: it was opened twice."""
    sample = SAMPLES / "sharegpt_500.json"
    conversations = json.loads(sample.read_text())
    text = "\n".join(map(json.dumps, conversations)) if by_line else json.dumps(conversations)
    given = {"model": "tiny-1b", "num_users": 2, "replay_cycles": 1}
    whole = requests(Config(dataset_path=str(sample), **given))
    assert requests(Config(dataset_path=piped(text.encode()), **given)) == whole


def test_a_pipe_is_replayed_once(piped: Piped) -> None:
    data = (SAMPLES / "mooncake.jsonl").read_bytes()
    given = {"model": "tiny-1b", "num_users": 1}
    once = requests(Config(trace=f"mooncake:{piped(data)}", replay_cycles=1, **given))
    assert len(once) == len(data.splitlines())
    again = "can be read only once; name a file, or give --replay-cycles 1"
    with pytest.raises(UsageError, match=again):
        requests(Config(trace=f"mooncake:{piped(data)}", replay_cycles=2, **given))


@pytest.mark.parametrize("kind", ["mooncake", "lmcache", "weka", "sharegpt"])
def test_a_pipe_that_falls_silent_is_given_up_in_one_line(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a storage trace of LMCache that was an internal error."""
    monkeypatch.setattr(inputs, "WRITER_SECONDS", 0.05)
    monkeypatch.setattr(inputs, "WAIT_SECONDS", 0.1)
    pipe = tmp_path / ("silent.lct" if kind == "lmcache" else "silent")
    os.mkfifo(pipe)
    kept_open = os.open(pipe, os.O_RDWR)
    given = {"dataset_path": str(pipe)} if kind == "sharegpt" else {"trace": f"{kind}:{pipe}"}
    try:
        with pytest.raises(UsageError, match="a pipe into which nothing came"):
            requests(Config(model="tiny-1b", num_users=1, replay_cycles=1, **given))
    finally:
        os.close(kept_open)
