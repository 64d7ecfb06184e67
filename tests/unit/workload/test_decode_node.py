"""Claims about a decode node's requests: what they read is stored before the load and fits."""

from itertools import islice
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.workload.decode_node import DecodeNodeWorkload
from kvspill.workload.rate import in_arrival_order
from kvspill.workload.registry import make_workload
from kvspill.world import World


def made(hold_bytes: int = 1 << 60, **changes: Any) -> DecodeNodeWorkload:
    config = Config(decode_only=True, **changes)
    workload = make_workload(config, World(config.seed), hold_bytes)
    assert isinstance(workload, DecodeNodeWorkload)
    return workload


def test_entries_have_the_sizes_of_the_first_requests_one_per_user() -> None:
    plain = make_workload(Config(num_users=20), World(42), 1 << 60)
    sizes = [request.context_tokens for request in islice(in_arrival_order(plain), 20)]
    assert [entry.tokens for entry in made(num_users=20).preload()] == sizes


def test_a_request_reads_a_stored_entry_and_nothing_else() -> None:
    workload = made(num_users=20)
    stored = set(workload.preload())
    found = list(islice(in_arrival_order(workload), 2000))
    assert {request.stored for request in found} == stored
    assert all(request.context_tokens == request.stored.tokens for request in found if request.stored)
    assert all(
        request.prefix is None and not request.chunks and not request.blocks and request.opening is None
        for request in found
    )


def test_entries_fill_at_most_four_fifths_of_the_last_tier() -> None:
    gib = 1 << 30
    entries = list(made(hold_bytes=gib, num_users=200).preload())
    assert 0 < len(entries) < 200
    assert sum(entry.tokens for entry in entries) * 131_072 <= 0.8 * gib


def test_a_number_that_was_asked_for_and_does_not_fit_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"--populate-entries 200: only \d+ of them fit in 80% of the storage tier"
    ):
        made(hold_bytes=1 << 30, populate_entries=200)
    with pytest.raises(UsageError, match="not one of the entries; give it more room or take a smaller"):
        made(hold_bytes=1 << 20)


def test_a_trace_can_be_decoded_as_well() -> None:
    workload = made(trace="mooncake:sample", populate_entries=10)
    assert len(list(workload.preload())) == 10
    assert sum(1 for _ in workload.session(0)) == 60
    assert workload.facts()["requests_read"] == 60
