"""Break-even: what loading saved against the modelled time to recompute."""

from typing import Any

import pytest

from kvspill.models.groups import KvSize
from kvspill.records import GIB, QoS, Request, RequestRecord
from kvspill.serving.breakeven import BreakEven

TOKEN_BYTES = 131_072


def record(loaded_tokens: Any, load_ns: int, recomputed_tokens: int = 0, started_ns: int = 10) -> Any:
    request = Request(0, 0, 0, QoS.BATCH, 0, 0, loaded_tokens + recomputed_tokens, 1)
    return RequestRecord(
        request=request,
        intended_ns=0,
        started_ns=started_ns,
        finished_ns=started_ns + 10,
        storage_ns=load_ns,
        generation_ns=0,
        prefill_ns=load_ns,
        decode_ns=0,
        generated_tokens=1,
        load_ns=load_ns,
        loaded_tokens=loaded_tokens,
        recomputed_tokens=recomputed_tokens,
    )


def test_a_load_pays_where_it_is_faster_than_recomputing() -> None:
    even = BreakEven(KvSize.even(TOKEN_BYTES), 100_000)
    even.add(record(1000, load_ns=40_000_000))
    even.add(record(1000, load_ns=160_000_000))
    assert (even.loads, even.paying) == (2, 1)
    assert even.net_gpu_seconds_saved == pytest.approx(0.0)


def test_a_64k_prompt_as_published_pays_from_0_67_gib_per_second_on() -> None:
    """12 s to recompute, 7.6 s to load at 1.25 GB/s: loading must win there and lose at half that speed."""
    even = BreakEven(KvSize.even(TOKEN_BYTES), 12e9 / 65_536)
    assert even.break_even_gib_per_sec == pytest.approx(8 / 12)
    even.add(record(65_536, load_ns=7_600_000_000))
    assert even.net_gpu_seconds_saved == pytest.approx(4.4)
    assert even.load_gib_per_sec == pytest.approx(65_536 * TOKEN_BYTES / GIB / 7.6)
    even.add(record(65_536, load_ns=15_200_000_000))
    assert even.paying == 1


def test_at_the_break_even_speed_nothing_is_saved() -> None:
    even = BreakEven(KvSize.even(TOKEN_BYTES), 183_100)
    tokens = 4096
    load_ns = tokens * TOKEN_BYTES / (even.break_even_gib_per_sec * GIB) * 1e9
    even.add(record(tokens, load_ns=round(load_ns)))
    assert even.net_gpu_seconds_saved == pytest.approx(0, abs=1e-6)
    assert even.facts()["storage_may_be_slower_by"] == pytest.approx(1.0)


def test_what_was_not_loaded_saves_nothing() -> None:
    even = BreakEven(KvSize.even(TOKEN_BYTES), 183_100)
    even.add(record(0, load_ns=0, recomputed_tokens=500))
    assert even.facts()["net_gpu_seconds_saved"] == 0
    assert even.facts()["load_gib_per_sec"] is None
    assert even.recomputed_tokens == 500


def test_the_first_token_waits_for_queue_and_load() -> None:
    assert record(10, load_ns=7).storage_ttft_ns == 17


SECOND = 1_000_000_000


def test_loads_of_overlapping_requests_are_not_summed_against_one_idle_gpu() -> None:
    """Ten requests share a device for 10 s: each waits that long, yet ten GPUs would have been busy 1 s."""
    even = BreakEven(KvSize.even(TOKEN_BYTES), SECOND / 1000)
    for _ in range(10):
        even.add(record(1000, load_ns=10 * SECOND, started_ns=0))
    even.add(record(0, load_ns=0, started_ns=10 * SECOND - 10))
    facts = even.facts()
    assert facts["span_seconds"] == pytest.approx(10.0)
    assert facts["recompute_gpus"] == pytest.approx(1.0)
    assert facts["loads_at_once"] == pytest.approx(10.0)
    assert facts["loads_alone"] == 0


def test_one_request_unloaded_is_a_load_that_no_other_overlapped() -> None:
    even = BreakEven(KvSize.even(TOKEN_BYTES), SECOND / 1000)
    for started, load in ((8.0, 0.5), (0.0, 1.0), (2.0, 3.0), (3.0, 0.5), (9.0, 2.0)):
        even.add(record(1000, load_ns=round(load * SECOND), started_ns=round(started * SECOND)))
    facts = even.facts()
    assert (facts["loads_alone"], facts["loads_alone_paid"]) == (3, 1)
    assert facts["loads_alone_seconds"] == pytest.approx(3.5)
    assert facts["loads_alone_recompute_seconds"] == pytest.approx(3.0)
