"""The prefix model on hand-made requests: what is loaded, recomputed, written, kept and dropped."""

import random
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.records import NS_PER_SEC, Outcome, Purpose, SharedPrefix, Tier
from kvspill.serving.generation import Generation
from kvspill.serving.write_behind import WriteBehindOptions
from sim.faults import FaultyBackend
from sim.replay import SLOW, TOKEN_BYTES, replay, request

BLOCK = 10 * TOKEN_BYTES


def test_each_matched_block_is_loaded_once_and_only_new_blocks_are_written() -> None:
    done = replay([request(0, "abc"), request(1, "abcde", at_ms=1)])
    assert done.keys_of("read", Purpose.HISTORY) == ["a", "b", "c"]
    assert done.keys_of("write", Purpose.PREFILL) == ["a", "b", "c", "d", "e"]


def test_decoding_touches_no_storage() -> None:
    done = replay([request(0, "abc")])
    assert done.keys_of("read", Purpose.DECODE) == []
    assert done.bytes_of("read") == 0


def test_a_match_ends_at_the_first_block_that_is_not_there() -> None:
    done = replay([request(0, "abc"), request(1, "axc", at_ms=1)])
    assert done.keys_of("read", Purpose.HISTORY) == ["a"]
    assert done.oracle.requests[1].loaded_tokens == 10
    assert done.oracle.requests[1].recomputed_tokens == 20


def test_every_block_is_a_lookup_found_or_not() -> None:
    done = replay([request(0, "abc"), request(1, "abz", at_ms=1)])
    outcomes = [lookup.outcome for lookup in done.oracle.lookups]
    assert outcomes.count(Outcome.HIT) == 2
    assert outcomes.count(Outcome.MISS) == 4


def test_requests_at_the_same_moment_write_a_common_block_once_and_the_later_ones_find_it() -> None:
    """Whatever the device's speed: a block on its way is waited for."""
    choices: tuple[dict[str, Any], ...] = ({}, {"device": SLOW})
    for device_options in choices:
        done = replay([request(user, "ab" + str(user)) for user in range(5)], **device_options)
        assert done.bytes_of("write") == 7 * BLOCK
        assert done.bytes_of("read") == 8 * BLOCK


def test_writes_do_not_keep_the_request_waiting() -> None:
    done = replay([request(0, [f"b{place}" for place in range(200)])], device=SLOW)
    record = done.oracle.requests[0]
    assert record.storage_ns == 0
    assert done.model.facts()["blocks_written"] == 200


def test_the_load_is_part_of_the_time_to_the_first_token() -> None:
    blocks = [f"b{place}" for place in range(100)]
    done = replay([request(0, blocks), request(1, blocks, at_ms=1000)], device=SLOW)
    record = done.oracle.requests[1]
    expected_ns = 100 * BLOCK / 2**30 * NS_PER_SEC + 100_000
    assert record.load_ns == pytest.approx(expected_ns, rel=0.01)
    assert record.storage_ttft_ns == record.queue_ns + record.load_ns
    assert record.storage_ns == record.load_ns


def test_only_recomputed_tokens_are_prefilled() -> None:
    requests = [request(0, "abc"), request(1, "abcd", at_ms=1000)]
    done = replay(requests, generation=Generation(0, ns_per_prefill_token=1000))
    assert [record.generation_ns for record in done.oracle.requests] == [30_000, 10_000]


def test_a_full_queue_drops_blocks_and_counts_them() -> None:
    blocks = [f"b{place}" for place in range(50)]
    options = WriteBehindOptions(queue_blocks=20, batch_blocks=5, workers=1)
    done = replay([request(0, blocks)], device=SLOW, write_behind=options)
    facts = done.model.facts()
    assert facts["blocks_dropped_full"] == 30
    assert facts["blocks_written"] == 20
    assert done.keys_of("write", Purpose.PREFILL) == blocks[:20]


def test_a_device_that_answers_at_once_never_drops() -> None:
    options = WriteBehindOptions(queue_blocks=4, batch_blocks=2, workers=1)
    done = replay([request(user, [f"u{user}b0", f"u{user}b1"]) for user in range(50)], write_behind=options)
    assert done.model.facts()["blocks_dropped_full"] == 0
    assert done.bytes_of("write") == 100 * BLOCK


def test_blocks_that_waited_too_long_are_dropped_and_counted() -> None:
    blocks = [f"b{place}" for place in range(100)]
    options = WriteBehindOptions(batch_blocks=10, workers=1, max_wait_ns=2_000_000)
    done = replay([request(0, blocks)], device=SLOW, write_behind=options)
    facts = done.model.facts()
    assert facts["blocks_dropped_late"] > 0
    assert facts["blocks_written"] + facts["blocks_dropped_late"] == 100


def test_a_short_prefix_is_recomputed_below_the_threshold() -> None:
    requests = [request(0, "abcd"), request(1, "ab", at_ms=1), request(2, "abcd", at_ms=2)]
    done = replay(requests, prefetch_min_tokens=30)
    assert done.keys_of("read", Purpose.HISTORY) == ["a", "b", "c", "d"]
    assert done.model.facts()["blocks_below_threshold"] == 2


def test_with_admission_from_the_second_use_a_block_is_written_when_it_is_made_again() -> None:
    requests = [request(user, "ab", at_ms=user) for user in range(3)]
    done = replay(requests, admit_uses=2)
    assert done.keys_of("write", Purpose.PREFILL) == ["a", "b"]
    assert done.keys_of("read", Purpose.HISTORY) == ["a", "b"]
    assert done.model.facts()["blocks_not_admitted"] == 2


def test_with_memory_above_an_unused_block_does_not_sink_to_storage() -> None:
    requests = [request(user, [f"u{user}"], at_ms=user) for user in range(20)]
    done = replay(requests, dram_blocks=8, demote_min_uses=1)
    assert done.bytes_of("write", tier=Tier.STORAGE) == 0
    sunk = replay(requests, dram_blocks=8, demote_min_uses=0)
    assert sunk.bytes_of("write", tier=Tier.STORAGE) == 12 * BLOCK


def test_blocks_read_from_storage_are_copied_into_dram_and_read_there_next_time() -> None:
    """The copy is dropped without a write below: its home is still there."""
    requests = [request(0, "ab"), *(request(user, [f"x{user}"], at_ms=user) for user in range(1, 9))]
    requests += [request(9, "ab", at_ms=20), request(10, "ab", at_ms=30)]
    done = replay(requests, dram_blocks=8)
    reads = [(op.tier, op.key) for op in done.oracle.ops if op.verb == "read" and op.purpose == "history"]
    assert reads == [(Tier.STORAGE, "a"), (Tier.STORAGE, "b"), (Tier.CPU, "a"), (Tier.CPU, "b")]
    assert sorted(done.keys_of("write", Purpose.PROMOTION)) == ["a", "b"]


def test_without_promotion_blocks_stay_where_they_are() -> None:
    requests = [request(0, "ab"), *(request(user, [f"x{user}"], at_ms=user) for user in range(1, 9))]
    requests += [request(9, "ab", at_ms=20), request(10, "ab", at_ms=30)]
    done = replay(requests, dram_blocks=8, write_behind=WriteBehindOptions(promote=False))
    assert done.bytes_of("read", Purpose.HISTORY, tier=Tier.STORAGE) == 4 * BLOCK
    assert done.keys_of("write", Purpose.PROMOTION) == []


def test_without_dram_promotion_changes_nothing() -> None:
    """Blocks have nowhere to be copied to, so no copy may take a place in the write queue."""
    shared = [f"b{place}" for place in range(10)]
    later = [
        request(user, [*shared, *(f"u{user}_{place}" for place in range(8))], at_ms=1000 + user // 4)
        for user in range(1, 25)
    ]
    found = []
    for promote in (True, False):
        options = WriteBehindOptions(queue_blocks=16, batch_blocks=4, workers=1, promote=promote)
        done = replay([request(0, shared), *later], device=SLOW, write_behind=options)
        found.append((done.model.facts(), done.oracle.requests, done.oracle.ops))
    assert found[0] == found[1]
    assert found[0][0]["blocks_promotions_dropped"] == 0


def test_writing_through_puts_blocks_on_storage_at_once_with_a_copy_in_dram() -> None:
    requests = [request(0, "ab"), request(1, "ab", at_ms=1)]
    done = replay(requests, dram_blocks=8, write_behind=WriteBehindOptions(through=True))
    assert done.bytes_of("write", Purpose.PREFILL, tier=Tier.STORAGE) == 2 * BLOCK
    assert done.bytes_of("read", tier=Tier.CPU) == 2 * BLOCK
    assert done.bytes_of("read", tier=Tier.STORAGE) == 0
    assert done.bytes_of("write", Purpose.DEMOTION) == 0


def test_eviction_takes_the_end_of_the_coldest_chain_and_counts_its_delete() -> None:
    requests = [request(0, "abcd"), request(1, "wxyz", at_ms=1), request(2, "q", at_ms=2)]
    done = replay(requests, storage_blocks=8)
    assert [eviction.key for eviction in done.oracle.evictions] == ["d"]
    assert done.keys_of("delete", Purpose.EVICTION) == ["d"]


def test_storage_without_eviction_refuses_what_does_not_fit() -> None:
    done = replay([request(0, "abcdefgh"), request(1, "xy", at_ms=1)], storage_blocks=8, policy="none")
    assert done.oracle.evictions == []
    assert done.model.facts()["blocks_refused"] == 2


def test_a_failed_read_is_an_error_and_fails_the_request() -> None:
    """S5: neither hit nor miss, and what lies behind it is recomputed."""
    wrap = lambda backend: FaultyBackend(backend, random.Random(3), read=0.5)  # noqa: E731 - one use
    requests = [request(user, "abcdef", at_ms=user) for user in range(10)]
    done = replay(requests, wrap=wrap)
    read_for_requests = [op for op in done.oracle.ops if op.purpose is Purpose.HISTORY]
    failed_reads = [op for op in read_for_requests if op.completion.error]
    errors = [lookup for lookup in done.oracle.lookups if lookup.outcome is Outcome.ERROR]
    assert len(errors) == len(failed_reads) > 0
    for record in done.oracle.requests:
        assert record.loaded_tokens + record.recomputed_tokens == 60
    assert any(record.failure == "block read" for record in done.oracle.requests)


def test_failed_writes_are_counted_and_leave_nothing() -> None:
    wrap = lambda backend: FaultyBackend(backend, random.Random(3), write=1.0)  # noqa: E731 - one use
    done = replay([request(0, "abc"), request(1, "abc", at_ms=1)], wrap=wrap)
    assert done.model.facts()["blocks_failed"] == 6
    assert done.cache.tiers[0].used_bytes == 0
    assert done.bytes_of("read") == 0


def test_a_prefill_node_writes_what_is_not_there_and_reads_nothing() -> None:
    requests = [request(0, "abc"), request(1, "abcd", at_ms=1)]
    prefills = replay(requests, prefill_only=True)
    assert prefills.bytes_of("read") == 0
    assert prefills.bytes_of("write") == 4 * BLOCK


def test_retrieved_chunks_are_entries_of_their_own() -> None:
    chunk = SharedPrefix("doc1", 30)
    done = replay([request(user, "ab", at_ms=user, chunks=(chunk,)) for user in range(2)])
    assert done.keys_of("write", Purpose.RAG) == ["doc1"]
    assert done.keys_of("read", Purpose.RAG) == ["doc1"]


def test_streaming_reads_everything_for_every_step_and_discards_it() -> None:
    done = replay([request(0, context=40), request(1, context=40, at_ms=1)], name="stream")
    assert done.bytes_of("write") == 80 * TOKEN_BYTES
    assert done.bytes_of("read", Purpose.DECODE) == 2 * 5 * 40 * TOKEN_BYTES
    assert done.cache.tiers[0].used_bytes == 0
    assert replay([request(0, context=40)], name="stream", stream_tokens_per_read=3).bytes_of("read") == (
        2 * 40 * TOKEN_BYTES
    )


def test_a_use_counts_also_where_the_block_has_left_memory_meanwhile() -> None:
    """To disk from the second use: a memory that forgets must not forget how often a block was asked for."""
    asked = [request(user, block, at_ms=user) for user, block in enumerate("abcabcabc")]
    done = replay(asked, dram_blocks=2, demote_min_uses=1)
    assert set(done.keys_of("write", Purpose.DEMOTION)) == {"a", "b", "c"}
    assert done.model.facts()["blocks_loaded"] > 0


def test_blocks_that_full_storage_refuses_live_in_memory_nevertheless() -> None:
    """Written through to a tier that gives nothing up: once it is full, DRAM still has its use."""
    asked = [request(user, block, at_ms=10 * user) for user, block in enumerate("abcdcdcd")]
    done = replay(
        asked,
        dram_blocks=4,
        storage_blocks=2,
        policy="none",
        write_behind=WriteBehindOptions(through=True),
    )
    assert done.model.facts()["blocks_refused"] > 0
    assert done.model.facts()["blocks_loaded"] == 4


def test_copies_whose_homes_fall_out_while_they_are_pushed_out_do_not_take_true_copies_down_c6(
    tmp_path: Path,
) -> None:
    """A batch was judged by its first block: where that had become a home, all others were demoted, too,
    onto those that were below already."""
    words = ["simulate", "--io-model", "prefix", "--num-users", "8", "--arrival", "closed", "--seed", "5"]
    words += ["--cpu-mem-gb", "4", "--storage-capacity-gb", "20", "--generation-mode", "fast", "--quiet"]
    assert main([*words, "--duration", "500", "--output", str(tmp_path / "result.json")]) == 0
