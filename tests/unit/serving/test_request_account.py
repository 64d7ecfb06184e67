"""The account of one request: time to first token, time per token, what is added, what is generated."""

from typing import Any

import pytest

from kvspill.records import Purpose, Request, RequestRecord, SharedPrefix, Verb
from kvspill.serving.generation import Generation
from sim.replay import SLOW, TOKEN_BYTES, Replayed, replay, request

MS = 1_000_000
PROMPT = SharedPrefix("prompt", 30)


def records(done: Replayed) -> list[RequestRecord]:
    return sorted(done.oracle.requests, key=lambda record: record.request.turn)


def asked(turn: int = 0, at_ms: int = 0, context: int = 40, **more: Any) -> Request:
    made: Request = request(0, context=context, at_ms=at_ms, turn=turn, **more)
    return made


def times(done: Replayed, verb: Verb, purpose: Purpose) -> list[int]:
    """How long each operation of the kind took."""
    return [op.completion.total_ns for op in done.oracle.ops if (op.verb, op.purpose) == (verb, purpose)]


@pytest.mark.parametrize("name", ["mlperf", "stream"])
def test_s12_ttft_is_queue_wait_and_everything_up_to_the_first_decode_read(name: str) -> None:
    """S12: TTFT = queue wait + everything up to and including the first decode read (prompt, history, RAG
    and prefix reads, recompute or prefill time, the prefill write where the model waits for it)."""
    turns = [asked(), asked(1, history_tokens=(40,))]
    done = replay(turns, name=name, device=SLOW, generation=Generation(2 * MS, 1_000))
    first, second = records(done)
    (write, *_), (read, *_) = (
        times(done, Verb.WRITE, Purpose.PREFILL),
        times(done, Verb.READ, Purpose.DECODE),
    )
    prefill_ns = 40 * 1_000
    assert first.queue_ns == 0
    assert first.ttft_ns == write + read + prefill_ns
    history_ns = sum(times(done, Verb.READ, Purpose.HISTORY))
    assert second.ttft_ns == second.queue_ns + history_ns + write + read + prefill_ns
    assert second.queue_ns > 5 * 2 * MS


def test_s12_without_decode_reads_ttft_is_the_wait_for_the_load_and_the_recomputation() -> None:
    turns = [request(0, "abc"), request(1, "abcd", at_ms=50)]
    done = replay(turns, device=SLOW, generation=Generation(2 * MS, 1_000))
    first, second = sorted(done.oracle.requests, key=lambda record: record.request.user)
    assert first.ttft_ns == 30 * 1_000
    loads = {op.completion.finished_ns - second.started_ns for op in done.oracle.ops if op.verb is Verb.READ}
    assert second.ttft_ns == max(loads) + 10 * 1_000


def test_s12_tpot_is_decode_storage_and_generation_by_generated_tokens() -> None:
    """S12: TPOT = (decode storage + generation) / generated tokens. The prefill is part of TTFT."""
    done = replay([asked()], name="mlperf", device=SLOW, generation=Generation(2 * MS, 1_000))
    (record,) = done.oracle.requests
    reads_ns = sum(times(done, Verb.READ, Purpose.DECODE))
    assert record.generated_tokens == 5
    assert record.tpot_ns == (reads_ns + 5 * 2 * MS) // 5


def test_s12_a_node_that_generates_nothing_has_neither() -> None:
    done = replay([asked()], name="mlperf", prefill_only=True)
    assert (records(done)[0].ttft_ns, records(done)[0].tpot_ns) == (None, None)


def test_s11_the_predecessors_generation_inside_the_wait_is_not_added_by_queue_or_storage() -> None:
    """S11: end-to-end without generation, the request's own and that of the predecessor it waited for."""
    turns = [asked(), asked(1, at_ms=4, history_tokens=(40,))]
    done = replay(turns, name="mlperf", device=SLOW, generation=Generation(2 * MS))
    first, second = records(done)
    assert first.waited_generation_ns == 0
    assert first.added_ns == first.storage_ns
    overlap_ns = first.finished_ns - max(second.intended_ns, first.finished_ns - first.generation_ns)
    assert 0 < second.waited_generation_ns == overlap_ns < first.generation_ns
    assert second.added_ns == second.end_to_end_ns - second.generation_ns - overlap_ns
    assert second.added_ns >= second.storage_ns


def test_s11_who_comes_after_the_predecessors_answer_waited_for_none_of_it() -> None:
    turns = [asked(), asked(1, at_ms=1000, history_tokens=(40,))]
    done = replay(turns, name="mlperf", device=SLOW, generation=Generation(2 * MS))
    assert [record.waited_generation_ns for record in records(done)] == [0, 0]


def test_s11_on_a_null_device_nothing_is_added_but_by_the_queue() -> None:
    turns = [asked(), asked(1, at_ms=3, history_tokens=(40,))]
    done = replay(turns, name="mlperf", generation=Generation(2 * MS))
    assert [record.added_ns for record in records(done)] == [0, 0]


def test_s17_a_request_that_only_prefills_because_of_its_length_still_generates_its_tokens() -> None:
    """S17: A request that only prefills because of its length still generates its tokens, and they count."""
    done = replay([asked(context=10_000)], name="mlperf", generation=Generation(2 * MS))
    (record,) = done.oracle.requests
    assert times(done, Verb.READ, Purpose.DECODE) == []
    assert record.generated_tokens == 5
    assert record.generation_ns == 5 * 2 * MS
    assert record.ttft_ns is not None


def test_s17_on_a_prompt_hit_the_turns_entry_holds_the_context_without_the_prompts_tokens() -> None:
    """S17: on a prompt hit the turn's entry holds the context without the prompt's tokens.

    On a miss the prompt is written once, as an entry of its own, and the same holds.
    """
    turns = [request(user, context=40, at_ms=user, prefix=PROMPT, opening=PROMPT) for user in range(2)]
    done = replay(turns, name="mlperf")
    written = [(op.key, op.nbytes) for op in done.oracle.ops if op.verb is Verb.WRITE]
    read = [op.nbytes for op in done.oracle.ops if (op.verb, op.purpose) == (Verb.READ, Purpose.PROMPT)]
    assert read == [30 * TOKEN_BYTES]
    assert written == [
        ("prompt", 30 * TOKEN_BYTES),
        ("u0_c0_t0", 10 * TOKEN_BYTES),
        ("u1_c0_t0", 10 * TOKEN_BYTES),
    ]
    decoded = {op.nbytes for op in done.oracle.ops if op.purpose is Purpose.DECODE}
    assert decoded == {10 * TOKEN_BYTES}


def test_s17_a_later_turn_reads_of_the_turn_before_what_its_entry_holds() -> None:
    first = request(context=40, prefix=PROMPT, opening=PROMPT)
    later = request(context=50, at_ms=1, turn=1, history_tokens=(40,), history_shared=(30,), opening=PROMPT)
    done = replay([first, later], name="mlperf")
    history = [op.nbytes for op in done.oracle.ops if op.purpose is Purpose.HISTORY]
    own = [op.nbytes for op in done.oracle.ops if op.key == "u0_c0_t1" and op.verb is Verb.WRITE]
    assert history == [10 * TOKEN_BYTES]
    assert own == [50 * TOKEN_BYTES]


def test_s17_a_prompt_as_long_as_the_context_leaves_an_entry_of_one_token() -> None:
    done = replay([request(context=20, prefix=PROMPT, opening=PROMPT)], name="mlperf")
    written = {op.key: op.nbytes for op in done.oracle.ops if op.verb is Verb.WRITE}
    assert written["u0_c0_t0"] == TOKEN_BYTES
