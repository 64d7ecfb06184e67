"""The prefix model where layers keep windows and states: ends of stored prefixes (docs/io-models.md)."""

import random
from collections.abc import Sequence
from dataclasses import replace

from kvspill.models.groups import KvSize
from kvspill.records import Completion, Outcome, Purpose
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import ObjectRef
from sim.faults import FaultyBackend
from sim.replay import SLOW, TOKEN_BYTES, replay, request

BLOCK = 10 * TOKEN_BYTES
STATE_BYTES = 7 * 4096
KV = KvSize(((1, 8 * TOKEN_BYTES),), windows=((15, 8 * 4096),), state_bits=8 * STATE_BYTES)
"""Full layers, windows of 15 tokens and states."""


class BrokenEnd(FaultyBackend):
    """A device that cannot read one end."""

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        answers = await self.inner.read(batch)
        return [
            replace(done, error="EIO") if ref.key == "c+end" else done
            for ref, done in zip(batch, answers, strict=True)
        ]


def test_an_end_is_stored_behind_the_blocks_of_a_request_and_loaded_with_them() -> None:
    done = replay([request(0, "abc"), request(1, "abcde", at_ms=1)], kv=KV)
    assert done.keys_of("write", Purpose.PREFILL) == ["a", "b", "c", "c+end", "d", "e", "e+end"]
    assert done.keys_of("read", Purpose.HISTORY) == ["a", "b", "c", "c+end"]
    assert done.oracle.requests[1].loaded_tokens == 30


def test_an_end_takes_its_windows_and_states() -> None:
    done = replay([request(0, "a"), request(1, "bcd", at_ms=1)], kv=KV)
    sizes = {op.key: op.nbytes for op in done.oracle.ops if op.verb == "write"}
    assert sizes["a+end"] == 10 * 4096 + STATE_BYTES
    assert sizes["d+end"] == 15 * 4096 + STATE_BYTES
    assert sizes["a"] == BLOCK


def test_blocks_behind_the_last_end_cannot_be_used_and_are_misses() -> None:
    done = replay([request(0, "abc"), request(1, "abxy", at_ms=1)], kv=KV)
    assert done.keys_of("read", Purpose.HISTORY) == []
    assert (done.oracle.requests[1].loaded_tokens, done.oracle.requests[1].recomputed_tokens) == (0, 40)
    assert [lookup.outcome for lookup in done.oracle.lookups] == [Outcome.MISS] * 7


def test_where_resident_blocks_could_not_be_used_an_end_is_stored_for_those_who_come_next() -> None:
    requests = [request(0, "abc"), request(1, "abx", at_ms=1), request(2, "aby", at_ms=2)]
    done = replay(requests, kv=KV)
    assert "b+end" in done.keys_of("write", Purpose.PREFILL)
    assert done.keys_of("read", Purpose.HISTORY) == ["a", "b", "b+end"]
    assert done.oracle.requests[2].loaded_tokens == 20


def test_a_request_waits_for_an_end_on_its_way() -> None:
    done = replay([request(0, "abc"), request(1, "abcd", at_ms=0.01)], kv=KV, device=SLOW)
    assert done.keys_of("read", Purpose.HISTORY) == ["a", "b", "c", "c+end"]


def test_an_end_goes_before_its_block() -> None:
    requests = [request(0, "ab"), *(request(user, f"{user}", at_ms=user) for user in range(1, 6))]
    done = replay(requests, kv=KV, storage_blocks=11, policy="lru")
    gone = [eviction.key for eviction in done.oracle.evictions]
    assert gone.index("b+end") < gone.index("b")


def test_an_end_that_cannot_be_read_fails_the_request_and_nothing_counts_as_loaded() -> None:
    def wrap(backend: ModelledBackend) -> BrokenEnd:
        return BrokenEnd(backend, random.Random(1))

    done = replay([request(0, "abc"), request(1, "abcd", at_ms=1)], kv=KV, wrap=wrap)
    assert done.oracle.requests[1].failure == "block read"
    assert done.oracle.requests[1].loaded_tokens == 0


def test_tokens_are_those_of_the_blocks_that_moved() -> None:
    done = replay([request(0, "abc"), request(1, "abcde", at_ms=1)], kv=KV)
    moved = {op.key: op.tokens for op in done.oracle.ops}
    assert (moved["a"], moved["c+end"]) == (10, 0)
    assert sum(op.tokens for op in done.oracle.ops if op.verb == "read") == 30
