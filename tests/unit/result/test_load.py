"""Who asked, in words that agree with how many they are."""

import pytest

from kvspill.config import Config
from kvspill.records import QoS
from kvspill.result.answer import answer
from unit.measure.rows import request
from unit.result.sample import built, empty_recorder


@pytest.mark.parametrize(
    ("users", "storage", "verdict"),
    [
        (1, 0.01, "YES: 1 user of llama3.1-8b keeps the latency target of interactive."),
        (1, 0.08, "NO: 1 user of llama3.1-8b misses the latency target of interactive."),
        (2, 0.08, "NO: 2 users of llama3.1-8b miss the latency target of interactive."),
    ],
)
def test_one_user_is_spoken_of_as_one_s11(users: int, storage: float, verdict: str) -> None:
    recorder = empty_recorder()
    for number in range(60):
        at = 11 + number / 10
        recorder.request(request(at + storage, intended=at, storage=storage, qos=QoS.INTERACTIVE, tokens=10))
    assert answer(built(recorder, config=Config(num_users=users))).verdict == verdict
