"""The recorder counts what completes inside the window, and nothing else (S3-S5, C6)."""

import itertools
from dataclasses import replace

import pytest

from kvspill.measure.recorder import Recorder
from kvspill.records import (
    Eviction,
    HitType,
    Lookup,
    Outcome,
    Purpose,
    QoS,
    SharedPrefix,
    Tier,
    Verb,
)
from unit.measure.rows import ns, op, piece, request

READ = (Tier.STORAGE, Verb.READ)


@pytest.fixture
def recorder() -> Recorder:
    """A window from second 10 to second 20."""
    return Recorder(ns(10), ns(20))


@pytest.mark.parametrize(("at", "counted"), [(9.999, 0), (10.0, 1), (15.0, 1), (20.0, 1), (20.001, 0)])
def test_both_edges_belong_to_the_window_and_nothing_beyond_s3(
    recorder: Recorder, at: float, counted: int
) -> None:
    recorder.op(op(at))
    recorder.request(request(at, intended=at))
    assert recorder.lane(*READ).op_count == counted
    assert recorder.requests.completed == counted


@pytest.mark.parametrize(("at", "counted"), [(9.999, 0), (10.0, 1), (19.999, 1), (20.0, 0)])
def test_what_is_decided_at_the_very_end_is_not_counted_s3(
    recorder: Recorder, at: float, counted: int
) -> None:
    """Python 3.11 and 3.12 cancel tasks in different orders: one to four lookups differed."""
    recorder.lookup(Lookup(ns(at), Purpose.DECODE, HitType.USER, Outcome.HIT, Tier.CPU))
    recorder.eviction(Eviction(ns(at), Tier.CPU, Tier.STORAGE, 7))
    assert sum(recorder.lookups.values()) == counted
    assert recorder.evictions[Tier.CPU, Tier.STORAGE] == counted


def test_latency_splits_into_queue_device_and_host_s2(recorder: Recorder) -> None:
    recorder.op(op(15.0, submitted=14.0, started=14.2, device=0.5))
    latencies = recorder.lane(*READ).latencies
    assert latencies.total.sum_ns == ns(1.0)
    assert latencies.component("queue").sum_ns == ns(0.2)
    assert latencies.component("device").sum_ns == ns(0.5)
    assert latencies.component("host").sum_ns == ns(0.3)


@pytest.mark.parametrize("tier", [Tier.CPU, Tier.GPU])
def test_waiting_for_a_thread_of_ours_is_host_time_in_memory_e11(recorder: Recorder, tier: Tier) -> None:
    recorder.op(op(15.0, submitted=14.0, started=14.2, device=0.5, tier=tier))
    latencies = recorder.lane(tier, Verb.READ).latencies
    assert latencies.component("queue").max_ns == 0
    assert latencies.component("device").sum_ns == ns(0.5)
    assert latencies.component("host").sum_ns == ns(0.5)


def test_bytes_count_piece_by_piece_when_the_piece_ends_inside_s4(recorder: Recorder) -> None:
    pieces = (piece(9.0, 9.9, 100), piece(9.5, 10.5, 200), piece(10.5, 11.5, 300))
    recorder.op(op(11.6, started=9.0, nbytes=600, pieces=pieces))
    lane = recorder.lane(*READ)
    assert lane.byte_count == 500
    assert lane.moved_bytes == 500
    assert lane.op_count == 1
    assert lane.pieces.count == 2
    assert recorder.timeline.columns(ns(20))["storage_read_bytes"][:3] == [200, 300, 0]


@pytest.mark.parametrize("error", [None, "cancelled", "EIO"])
def test_an_operation_that_ends_after_the_window_leaves_its_early_bytes_and_its_age_s4_s16(
    recorder: Recorder, error: str | None
) -> None:
    pieces = (piece(18.5, 19, 400), piece(19, 20.5, 600))
    recorder.op(op(20.6, submitted=17.5, started=18.0, device=2.0, nbytes=1000, pieces=pieces, error=error))
    lane = recorder.lane(*READ)
    assert lane.byte_count == (400 if error != "EIO" else 0)
    assert lane.op_count == 0
    assert lane.error_count == 0
    assert lane.latencies.total.sum_ns == ns(2.5)
    assert lane.latencies.component("queue").sum_ns == ns(0.5)
    assert lane.latencies.component("device").sum_ns == ns(1.4)
    assert (lane.in_flight_at_end, lane.in_flight_oldest_ns) == (1, ns(2.5))


def test_what_is_cut_off_by_the_end_counts_with_its_age_s16(recorder: Recorder) -> None:
    recorder.op(op(20.0, submitted=12.0, started=20.0, device=0.0, error="cancelled"))
    recorder.op(op(20.0, started=18.0, device=2.0, error="cancelled"))
    lane = recorder.lane(*READ)
    assert lane.latencies.total.sum_ns == ns(10.0)
    assert lane.latencies.component("queue").sum_ns == ns(8.0)
    assert lane.latencies.component("device").sum_ns == ns(2.0)
    assert (lane.in_flight_at_end, lane.in_flight_oldest_ns) == (2, ns(8.0))


def test_what_is_asked_only_at_the_end_or_later_was_not_in_flight_s16(recorder: Recorder) -> None:
    recorder.op(op(20.0, started=20.0, error="cancelled"))
    recorder.op(op(22.0, started=21.0))
    lane = recorder.lane(*READ)
    assert (lane.in_flight_at_end, lane.latencies.total.count) == (0, 0)


def test_what_never_returned_counts_with_its_age_in_the_device_or_in_the_queue_s16(
    recorder: Recorder,
) -> None:
    recorder.unanswered(Tier.STORAGE, Verb.READ, ns(13), 2, in_device=True)
    recorder.unanswered(Tier.STORAGE, Verb.READ, ns(18), 1, in_device=False)
    recorder.unanswered(Tier.STORAGE, Verb.READ, ns(20), 1, in_device=True)
    lane = recorder.lane(*READ)
    assert lane.in_flight_at_end == 3
    assert lane.in_flight_oldest_ns == ns(7)
    assert lane.latencies.total.sum_ns == ns(16)
    assert lane.latencies.component("device").sum_ns == ns(14)
    assert lane.latencies.component("queue").sum_ns == ns(2)


def test_padding_is_device_traffic_but_no_kv_bytes_c7(recorder: Recorder) -> None:
    recorder.op(op(15, started=14, nbytes=5000, stored_bytes=8192, pieces=(piece(14, 15, 8192),)))
    lane = recorder.lane(*READ)
    assert lane.byte_count == 5000
    assert lane.moved_bytes == 8192


def test_modelled_io_counts_by_interpolation_over_the_window_s4(recorder: Recorder) -> None:
    recorder.op(op(12.0, started=8.0, nbytes=4000))
    recorder.op(op(22.0, started=18.0, nbytes=8000))
    lane = recorder.lane(*READ)
    assert lane.byte_count == 2000 + 4000
    columns = recorder.timeline.columns(recorder.window_end_ns)["storage_read_bytes"]
    assert columns == [1000, 1000, 0, 0, 0, 0, 0, 0, 2000, 2000]
    assert lane.op_count == 1


def test_modelled_io_longer_than_the_window_fills_all_of_it(recorder: Recorder) -> None:
    recorder.op(op(30.0, started=0.0, nbytes=3000))
    assert recorder.timeline.columns(ns(20))["storage_read_bytes"] == [100] * 10


def test_an_instant_operation_counts_whole(recorder: Recorder) -> None:
    recorder.op(op(15.0, nbytes=123))
    assert recorder.lane(*READ).byte_count == 123


def test_a_failed_operation_is_an_error_and_nothing_else(recorder: Recorder) -> None:
    recorder.op(op(15, started=14, nbytes=800, error="EIO", pieces=(piece(14, 14.5, 400),)))
    recorder.op(op(15, started=14, nbytes=800, verb=Verb.WRITE, error="ENOSPC"))
    lane = recorder.lane(*READ)
    assert lane.errors == {"EIO": 1}
    assert recorder.lane(Tier.STORAGE, Verb.WRITE).errors == {"ENOSPC": 1}
    assert (lane.op_count, lane.byte_count, lane.moved_bytes) == (0, 0, 0)
    assert lane.latencies.total.count == 0
    assert lane.pieces.count == 0
    assert lane.failed_moved_bytes == 400
    assert recorder.timeline.columns(ns(20))["errors"] == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0]


def test_a_failure_outside_the_window_is_no_error_of_the_window(recorder: Recorder) -> None:
    recorder.op(op(9, error="EIO"))
    recorder.op(op(21, error="EIO"))
    assert not recorder.lane(*READ).errors


def test_what_the_end_of_the_run_cut_off_is_no_failure_and_its_pieces_count_s4(recorder: Recorder) -> None:
    pieces = (piece(18, 19, 250), piece(19, 20.2, 250))
    recorder.op(op(20.2, started=18, nbytes=900, stored_bytes=1000, error="cancelled", pieces=pieces))
    lane = recorder.lane(*READ)
    assert not lane.errors
    assert lane.byte_count == 225
    assert lane.op_count == 0


def test_a_modelled_transfer_that_was_cut_off_counts_what_flowed_inside_s4(recorder: Recorder) -> None:
    recorder.op(op(20, started=18, nbytes=1000, error="cancelled", pieces=(piece(18, 20, 600),)))
    recorder.op(op(21, started=19, nbytes=1000, error="cancelled", pieces=(piece(19, 21, 400),)))
    assert recorder.lane(*READ).byte_count == 600 + 200
    assert not recorder.lane(*READ).errors


def test_a_cancellation_inside_the_window_is_a_failure(recorder: Recorder) -> None:
    recorder.op(op(15, started=14, error="cancelled", pieces=(piece(14, 15, 10),)))
    assert recorder.lane(*READ).errors == {"cancelled": 1}
    assert recorder.lane(*READ).byte_count == 0


def test_demotions_are_in_the_tiers_figures_and_also_apart_c6(recorder: Recorder) -> None:
    recorder.op(op(15, started=14, tier=Tier.CPU, purpose=Purpose.DEMOTION, nbytes=70))
    recorder.op(op(16, started=14, tier=Tier.CPU, nbytes=30))
    lane = recorder.lane(Tier.CPU, Verb.READ)
    assert lane.byte_count == 100
    assert lane.nbytes[Purpose.DEMOTION] == 70
    assert lane.latencies.total.count == 2
    assert lane.demotion_latencies.total.sum_ns == ns(1)


def test_deletes_have_their_own_histogram_and_move_no_bytes_e3(recorder: Recorder) -> None:
    recorder.op(op(15, started=14, verb=Verb.DELETE, purpose=Purpose.EVICTION, nbytes=1000))
    lane = recorder.lane(Tier.STORAGE, Verb.DELETE)
    assert lane.latencies.total.count == 1
    assert lane.byte_count == 0
    assert "storage_delete_bytes" not in recorder.timeline.columns(ns(20))


def test_a_request_adds_its_parts_and_tokens_when_it_completes_s4(recorder: Recorder) -> None:
    recorder.request(
        request(15, intended=9, started=11, storage=1, generation=2.5, prefill=0.4, decode=0.6, tokens=80)
    )
    tally = recorder.requests
    parts = {name: histogram.sum_ns for name, histogram in tally.parts.items()}
    assert parts == {
        "end_to_end": ns(6),
        "queue": ns(2),
        "storage": ns(1),
        "generation": ns(2.5),
        "other": ns(0.5),
        "prefill": ns(0.4),
        "decode": ns(0.6),
        "ttft": 0,
        "tpot": ns(3.1) // 80,
        "added": ns(3.5),
    }
    assert parts["end_to_end"] == parts["queue"] + parts["storage"] + parts["generation"] + parts["other"]
    assert tally.tokens == 80
    assert recorder.timeline.columns(ns(20))["tokens"][5] == 80
    assert tally.by_qos[QoS.BATCH].count == 1
    assert tally.by_qos[QoS.INTERACTIVE].count == 0


def test_a_failed_request_adds_no_tokens_and_no_latency_c3(recorder: Recorder) -> None:
    recorder.request(request(15, storage=3, tokens=80, failure="write: ENOSPC"))
    tally = recorder.requests
    assert (tally.completed, tally.tokens) == (0, 0)
    assert tally.failed == {"write: ENOSPC": 1}
    assert tally.parts["storage"].count == 0
    assert "tokens" not in recorder.timeline.columns(ns(20))


@pytest.mark.parametrize(
    ("start", "end", "inside"), [(12, 15, 3), (5, 12, 2), (18, 30, 2), (5, 30, 10), (5, 10, 0), (20, 25, 0)]
)
def test_time_inside_cache_calls_counts_where_it_lies_in_the_window(
    recorder: Recorder, start: int, end: int, inside: int
) -> None:
    """S1, S3: whoever's it is, also that of requests which are not done when the window ends."""
    recorder.cache_call(ns(start), ns(end))
    assert recorder.cache_call_ns == ns(inside)


def test_prompts_seen_are_counted_by_kind(recorder: Recorder) -> None:
    recorder.request(request(15, prefix=SharedPrefix("p", 10)))
    recorder.request(request(15, prefix=SharedPrefix("q", 10, HitType.COMMON)))
    recorder.request(request(15))
    assert recorder.requests.prefixes == {HitType.SYSTEM: 1, HitType.COMMON: 1}


def test_lookups_keep_outcome_purpose_kind_and_tier_s5(recorder: Recorder) -> None:
    recorder.lookup(Lookup(ns(15), Purpose.HISTORY, HitType.MULTI_TURN, Outcome.MISS, None))
    recorder.lookup(Lookup(ns(15), Purpose.DECODE, HitType.USER, Outcome.ERROR, Tier.STORAGE))
    assert recorder.lookups == {
        (Outcome.MISS, Purpose.HISTORY, HitType.MULTI_TURN, None): 1,
        (Outcome.ERROR, Purpose.DECODE, HitType.USER, Tier.STORAGE): 1,
    }
    columns = recorder.timeline.columns(ns(20))
    assert columns["misses"][5] == columns["lookup_errors"][5] == 1
    assert "hits" not in columns


def test_closing_early_keeps_what_came_and_drops_what_follows(recorder: Recorder) -> None:
    recorder.request(request(12))
    assert recorder.close_window(ns(13)) == ns(13)
    recorder.request(request(14))
    recorder.op(op(14, started=12, nbytes=2000))
    assert recorder.requests.completed == 1
    assert recorder.lane(*READ).byte_count == 1000
    assert recorder.window_seconds == 3


def test_closing_never_cuts_a_row_that_was_counted(recorder: Recorder) -> None:
    recorder.request(request(12))
    assert recorder.close_window(ns(11)) == ns(12)


def test_closing_before_the_window_leaves_an_empty_one(recorder: Recorder) -> None:
    assert recorder.close_window(ns(5)) == ns(10)
    recorder.request(request(11))
    assert recorder.window_seconds == 0
    assert recorder.requests.completed == 0


def test_closing_later_than_the_end_changes_nothing(recorder: Recorder) -> None:
    assert recorder.close_window(ns(99)) == ns(20)


def test_a_window_without_an_end_stays_open_until_it_is_closed() -> None:
    recorder = Recorder(0, None)
    recorder.request(request(0.0))
    recorder.request(request(3601.5))
    assert recorder.is_open_ended
    recorder.close_window(ns(3601.5))
    assert not recorder.is_open_ended
    assert recorder.requests.completed == 2
    tokens = recorder.timeline.columns(recorder.window_end_ns)["tokens"]
    assert len(tokens) == 3602
    assert tokens[0] == tokens[-1] == 10


def test_the_sample_of_requests_is_even_and_bounded() -> None:
    recorder = Recorder(0, ns(100))
    for n in range(5000):
        recorder.request(request(50, intended=0, storage=n / 1000))
    rows = recorder.requests.sample.rows
    assert 500 <= len(rows) <= 1000
    seen = [row[1] for row in rows]
    gaps = {later - earlier for earlier, later in itertools.pairwise(seen)}
    assert len(gaps) == 1
    assert seen[0] == 0


def test_storage_ttft_is_that_of_the_window_and_of_requests_that_say_what_they_recomputed() -> None:
    recorder = Recorder(ns(10), ns(20))
    for finished, recomputed in ((9, 3), (15, None), (16, 3), (21, 3)):
        recorder.request(replace(request(finished), recomputed_tokens=recomputed, load_ns=7))
    assert recorder.storage_ttft.count == 1
    assert recorder.storage_ttft.statistics_ms() is not None
