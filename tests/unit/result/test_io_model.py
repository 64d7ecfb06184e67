"""What the summary says of the I/O model."""

from typing import Any

import pytest

from kvspill.records import GIB, Purpose, Tier, Verb
from kvspill.result.io_model import io_model_cautions, io_model_rows
from unit.measure.rows import op
from unit.result.sample import built, empty_recorder, facts, tier

BOUNDS: dict[str, Any] = {
    "looked_up_bytes": 100,
    "infinite": 0.6,
    "belady": 0.5,
    "lru": 0.4,
    "belady_exact": True,
    "requests": 7,
    "truncated": False,
}
EVEN: dict[str, Any] = {
    "recompute_us_per_token": 183.1,
    "requests_that_loaded": 4,
    "requests_where_loading_paid": 3,
    "loaded_tokens": 100,
    "recomputed_tokens": 50,
    "load_seconds": 1.0,
    "recompute_seconds_avoided": 3.0,
    "net_gpu_seconds_saved": 2.0,
    "load_gib_per_sec": 2.0,
    "break_even_gib_per_sec": 0.667,
    "storage_may_be_slower_by": 3.0,
    "recompute_source": "as given",
    "span_seconds": 2.0,
    "recompute_gpus": 1.5,
    "loads_at_once": 0.5,
    "loads_alone": 2,
    "loads_alone_paid": 1,
    "loads_alone_seconds": 0.5,
    "loads_alone_recompute_seconds": 1.0,
}
PREFIX: dict[str, Any] = {
    "name": "prefix",
    "prefill_us_per_token": 183.0,
    "read_bytes": 1 << 30,
    "least_read_bytes": 1 << 30,
    "read_inflation": 1.0,
    "byte_hit_rate": 0.39,
    "hit_rate_bounds": BOUNDS,
    "break_even": EVEN,
    "storage_ttft_ms": {"mean": 1.0, "p95": 2.0},
    "blocks_asked": 10,
    "blocks_loaded": 4,
    "blocks_written": 5,
    "blocks_offered": 9,
    "blocks_not_admitted": 0,
    "blocks_dropped_full": 0,
    "blocks_dropped_late": 0,
    "blocks_refused": 0,
    "blocks_failed": 0,
}


def said(**changes: Any) -> Any:
    return dict(io_model_rows({**PREFIX, **changes}))


def test_inflation_bounds_and_break_even_are_said() -> None:
    rows = said()
    assert rows["Read inflation"].startswith("1.00 x")
    assert rows["Bytes found"] == (
        "39.0%; one request at a time: LRU of this size 40.0%, perfect foresight 50.0%, unlimited cache 60.0%"
    )
    assert "683 MiB/s" in rows["Break-even (modelled)"]
    assert rows["Break-even (modelled)"].endswith("with all waits and others beside them")
    assert "  not written" not in rows


def test_like_is_compared_with_like_for_one_request_and_for_the_whole_load() -> None:
    rows = said()
    assert rows["  one request alone"] == (
        "a load takes 250.0 ms, recomputing 500.0 ms on an idle GPU "
        "(mean of 2 without another beside it, 1 of which paid)"
    )
    assert rows["  under this load"] == (
        "recomputing what was loaded would keep 1.50 GPUs busy, which loading spares; a mean load took "
        "250.0 ms, 0.5 at once"
    )
    assert rows["  time to recompute"] == "183.1 us per token, as given"
    assert "--num-users 1" in said(break_even={**EVEN, "loads_alone": 0})["  one request alone"]


def test_foresight_over_entries_of_many_sizes_is_called_an_upper_bound() -> None:
    assert "at most 50.0%" in said(hit_rate_bounds={**BOUNDS, "belady_exact": False})["Bytes found"]


def test_what_was_recomputed_alone_has_no_break_even() -> None:
    rows = said(break_even={**EVEN, "requests_that_loaded": 0})
    assert rows["Break-even"] == "nothing was loaded"


def test_no_shared_beginning_has_no_inflation() -> None:
    assert "no request" in said(read_inflation=None)["Read inflation"]


def test_blocks_that_were_not_written_are_named_with_their_reason() -> None:
    assert said(blocks_refused=3, blocks_dropped_late=2)["  not written"] == "2 waited too long, 3 no room"


def test_the_rule_for_windows_and_states_is_called_modelled() -> None:
    assert "no engine was measured" in said(ends_modelled=True)["Ends of prefixes (modelled)"]
    assert "Ends of prefixes (modelled)" not in said()


def test_a_run_without_facts_says_nothing() -> None:
    assert list(io_model_rows({})) == []


@pytest.mark.parametrize(
    ("count", "code"),
    [("blocks_failed", "block_writes_failed"), ("blocks_dropped_full", "block_writes_dropped")],
)
def test_lost_writes_raise_a_warning_with_a_remedy(count: str, code: str) -> None:
    assert list(io_model_cautions(PREFIX)) == []
    (found,) = io_model_cautions({**PREFIX, count: 3})
    assert found.code == code
    assert "3" in found.message
    assert found.remedy


def test_a_run_that_recomputes_for_free_is_doubted() -> None:
    (found,) = io_model_cautions({**PREFIX, "prefill_us_per_token": 0.0})
    assert found.code == "free_recompute"
    assert list(io_model_cautions({**PREFIX, "name": "mlperf", "prefill_us_per_token": 0.0})) == []


def loaded_with(**counters: float) -> dict[str, Any]:
    """The break-even of a run that read 1 GiB from the GPU, 2 from DRAM and 1 from storage, in a second."""
    recorder = empty_recorder()
    for name, gib in ((Tier.GPU, 1), (Tier.CPU, 2), (Tier.STORAGE, 1)):
        recorder.op(op(13, started=11, tier=name, verb=Verb.READ, nbytes=gib * GIB))
    recorder.op(op(13, started=11, tier=Tier.CPU, verb=Verb.READ, nbytes=9 * GIB, purpose=Purpose.DEMOTION))
    card = tier(Tier.GPU, backend="gpu", counters=counters)
    block = {**PREFIX, "break_even": {**EVEN, "load_gib_per_sec": 4.0}}
    found = built(recorder, facts(tiers=(card, tier(Tier.CPU), tier(Tier.STORAGE)), io_model=block))
    even: dict[str, Any] = found.io_model["break_even"]
    return even


def test_what_ended_in_host_memory_is_brought_to_the_gpu_at_the_measured_speed_of_the_link() -> None:
    link = {"pcie_load_bytes": 40 * GIB, "pcie_load_device_seconds": 1.0}
    even = loaded_with(**link)
    assert even["ended_in_host_gib"] == pytest.approx(2)
    assert even["pcie_gib_per_sec"] == pytest.approx(40)
    assert even["load_to_gpu_gib_per_sec"] == pytest.approx(4 / (1 + 2 / 40))
    (row,) = [
        text for name, text in io_model_rows({**PREFIX, "break_even": even}) if name == "  on to the GPU"
    ]
    assert row.startswith("at 3.81 GiB/s, with the 2.00 GiB of loads")
    assert row.endswith("over PCIe at its measured 40.00 GiB/s")


def test_where_storage_ends_in_host_memory_its_loads_go_over_the_link_too() -> None:
    even = loaded_with(pcie_in_bytes=40 * GIB, pcie_in_device_seconds=1.0)
    assert even["ended_in_host_gib"] == pytest.approx(3)


def test_without_a_measured_link_nothing_is_said_of_it() -> None:
    assert "pcie_gib_per_sec" not in loaded_with()
    assert "  on to the GPU" not in said()
