"""A fault is reported and not compensated (S13): it fails its own request, and nothing is issued for it."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import DROPPED, Outcome, Purpose, Tier, Verb
from kvspill.run import trial
from kvspill.run.backends import open_backends
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.serving.generation import Generation
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend
from sim.faults import FaultyBackend
from sim.replay import SLOW, replay, request

LATE = Generation(1_000_000_000)
"""A second per token: a request is not over while its blocks are written."""


def failing(**shares: Any) -> Callable[[ModelledBackend], Backend]:
    return lambda backend: FaultyBackend(backend, random.Random(3), **shares)


def failing_below() -> Callable[[ModelledBackend], Backend]:
    """Of two tiers the second, below memory, takes nothing."""
    wraps = iter((lambda memory: memory, failing(write=1.0)))
    return lambda backend: next(wraps)(backend)


def simulated(shares: dict[str, Any], **settings: Any) -> dict[str, Any]:
    usual = {"model": "tiny-1b", "num_users": 12, "cpu_mem_gb": 0, "duration": 60, "generation_mode": "fast"}
    config = Config(**usual | settings)
    real_open = open_backends

    def open_failing(*arguments: Any) -> dict[Tier, Backend]:
        backends = real_open(*arguments)
        inner = backends[Tier.STORAGE]
        assert isinstance(inner, ModelledBackend)
        return {**backends, Tier.STORAGE: FaultyBackend(inner, random.Random(1), **shares)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "open_backends", open_failing)
        plan = Plan(config, simulated=True, storage_bytes=config.storage_bytes or 1 << 50)
        return trial.run_trial(plan, Progress(quiet=True)).document()


def operations(done: Any) -> Counter[tuple[Verb, Purpose]]:
    return Counter((op.verb, op.purpose) for op in done.oracle.ops)


@pytest.mark.parametrize("name", ["mlperf", "stream"])
def test_no_operation_is_issued_to_make_up_for_one_that_failed(name: str) -> None:
    """A failed write is all that its request does; failed reads are as many as it meant to do."""
    asked = [request(user, context=40, at_ms=user) for user in range(4)]
    written = replay(asked, name=name, wrap=failing(write=1.0))
    assert operations(written) == {(Verb.WRITE, Purpose.PREFILL): 4}
    healthy, read = replay(asked, name=name), replay(asked, name=name, wrap=failing(read=1.0))
    reads = (Verb.READ, Purpose.DECODE)
    assert operations(read)[reads] == operations(healthy)[reads]
    assert {record.failure for record in read.oracle.requests} == {"decode read"}


def test_a_chain_that_a_fault_broke_is_recomputed_and_no_other_block_is_read_for_it() -> None:
    asked = [request(user, "abcdef", at_ms=user) for user in range(8)]
    done = replay(asked, wrap=failing(read=0.5))
    reads = [op for op in done.oracle.ops if op.verb is Verb.READ]
    outcomes = Counter(lookup.outcome for lookup in done.oracle.lookups)
    assert {op.purpose for op in reads} == {Purpose.HISTORY}
    assert outcomes[Outcome.ERROR] == sum(op.completion.error is not None for op in reads) > 0
    assert outcomes[Outcome.HIT] == sum(op.completion.error is None for op in reads)


def test_an_entry_that_is_written_again_after_a_failed_read_is_an_ordinary_write() -> None:
    asked = [request(0, context=40), request(0, context=40, at_ms=1, turn=1, history_tokens=(40,))]
    asked.append(request(0, context=40, at_ms=2, turn=2, history_tokens=(40, 40)))
    done = replay(asked, name="mlperf", wrap=failing(read=1.0))
    assert {op.purpose for op in done.oracle.ops if op.verb is Verb.WRITE} == {
        Purpose.PREFILL,
        Purpose.HISTORY,
    }


def test_a_block_that_cannot_be_written_fails_the_request_that_made_it() -> None:
    done = replay([request(0, "abc"), request(1, "abc", at_ms=1)], wrap=failing(write=1.0), generation=LATE)
    assert [record.failure for record in done.oracle.requests] == ["block write", "block write"]


def test_a_block_whose_request_is_over_fails_no_other() -> None:
    """The error row remains, and with it the mark of the result."""
    asked = [request(0, "abc"), request(1, "xyz", at_ms=10)]
    done = replay(asked, device=SLOW, wrap=failing(write=1.0))
    assert [record.failure for record in done.oracle.requests] == [None, None]
    assert done.cache is not None
    assert done.cache.errors == {(Tier.STORAGE, Verb.WRITE, "EIO"): 6}


@pytest.mark.parametrize("io_model", ["mlperf", "prefix", "stream"])
def test_faults_fail_requests_and_every_error_counts_by_its_kind(io_model: str) -> None:
    result = simulated({"read": 0.2, "write": 0.2}, io_model=io_model, warmup=0)
    requests, errors = result["honesty"]["requests"], result["honesty"]["errors"]
    assert requests["failed"] > 0
    assert {(error["tier"], error["kind"]) for error in errors} == {("storage", "EIO")}
    assert {error["verb"] for error in errors} == {"read", "write"}


@pytest.mark.parametrize("io_model", ["mlperf", "prefix"])
def test_a_drive_behind_memory_that_takes_nothing_fails_the_requests_that_wait_for_it(io_model: str) -> None:
    """C6: their entries fit into memory, but what had to leave it for them was lost."""
    settings: dict[str, Any] = {"cpu_mem_gb": 0.25, "warmup": 0, "generation_mode": "realistic"}
    result = simulated({"write": 1.0, "error": "ENOSPC"}, io_model=io_model, **settings)
    metrics, requests = result["metrics"], result["honesty"]["requests"]
    assert requests["failed"] > 0
    failed = next(item for item in result["warnings"] if item["code"] == "failed_requests")
    assert "demotion: ENOSPC" in failed["message"]
    # Nothing fell out of memory because it was full: what was lost is an error.
    assert metrics["cpu_evicted_entries"]["value"] == 0


def test_a_request_whose_room_cost_another_entry_fails_and_reads_its_own_to_the_end() -> None:
    asked = [request(user, context=40, at_ms=user) for user in range(3)]
    memory: dict[str, Any] = {"dram_blocks": 4, "name": "mlperf"}
    whole = replay(asked, **memory)
    faulty = replay(asked, wrap=failing_below(), **memory)
    assert [record.failure for record in whole.oracle.requests] == [None] * 3
    assert [record.failure for record in faulty.oracle.requests] == [None, "demotion: EIO", "demotion: EIO"]
    reads = (Verb.READ, Purpose.DECODE)
    assert operations(faulty)[reads] == operations(whole)[reads] > 0
    assert [record.read_bytes for record in faulty.oracle.requests] == [
        record.read_bytes for record in whole.oracle.requests
    ]


def test_blocks_whose_room_cost_others_fail_the_request_that_made_them() -> None:
    asked = [request(0, "abc"), request(1, "xyz", at_ms=1)]
    done = replay(asked, wrap=failing_below(), dram_blocks=4, generation=LATE)
    assert [record.failure for record in done.oracle.requests] == [None, "demotion: EIO"]


def test_tokens_of_failed_requests_do_not_count() -> None:
    result = simulated({"write": 1.0}, warmup=0)
    assert result["honesty"]["requests"]["failed"] > 0
    assert result["metrics"]["avg_throughput_tokens_per_sec"]["value"] == 0


def test_no_figure_is_corrected_for_faults() -> None:
    result = simulated({"read": 0.3}, warmup=0)
    metrics = result["metrics"]
    tokens = metrics["avg_throughput_tokens_per_sec"]["value"] * 60
    storage_seconds = metrics["total_storage_io_time"]["value"]
    expected = tokens / storage_seconds
    assert metrics["storage_throughput_tokens_per_sec"]["value"] == pytest.approx(expected, rel=1e-6)


def test_a_device_that_keeps_nothing_fails_almost_every_request() -> None:
    result = simulated({"write": 1.0}, io_model="prefix", generation_mode="realistic", warmup=0)
    requests = result["honesty"]["requests"]
    assert requests["failed"] > 9 * requests["completed"]
    assert result["io_model"]["blocks_written"] == 0
    assert "block_writes_failed" in [warning["code"] for warning in result["warnings"]]


@pytest.mark.parametrize("io_model", ["mlperf", "prefix", "stream"])
def test_what_the_store_itself_drops_is_a_miss_that_is_written_again_and_no_fault(io_model: str) -> None:
    settings: dict[str, Any] = {"io_model": io_model, "arrival": "closed", "num_users": 3}
    whole = simulated({}, **settings)
    found = simulated({"read": 0.1, "error": DROPPED}, **settings)
    assert not found["faulty"]
    assert found["honesty"]["requests"]["failed"] == 0
    assert found["honesty"]["errors"] == found["honesty"]["errors_outside_window"] == []
    rates = [result["metrics"]["cache_hit_rate"]["value"] for result in (whole, found)]
    assert rates[1] < rates[0]
