"""The answer over many simulated loads: one cause, said alike everywhere, and never one that took no time."""

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvspill.report.console import render_summary
from kvspill.result.answer import Status, answer
from kvspill.result.bottleneck import STORAGE, Binds
from kvspill.result.schema import Result
from sim.test_service_classes import simulated

LOADS: dict[str, tuple[dict[str, Any], Status, Binds]] = {
    "overloaded": ({"arrival": "open", "num_users": 20, "duration": 60}, Status.UNDECIDED, Binds.LOAD),
    "idle": (
        {"arrival": "closed", "num_users": 4, "model": "tiny-1b", "device_profile": "nvme-gen5"},
        Status.YES,
        Binds.GENERATION,
    ),
    "null device": ({"arrival": "closed"}, Status.YES, Binds.GENERATION),
    "slow device": (
        {
            "arrival": "closed",
            "num_users": 60,
            "device_profile": "sata-ssd",
            "io_threads": 1000,
            "duration": 900,
        },
        Status.NO,
        Binds.DEVICE,
    ),
    "more at once than slots": (
        {"arrival": "closed", "num_users": 100, "device_profile": "sata-ssd", "duration": 700},
        Status.NO,
        Binds.DEPTH,
    ),
    "DRAM alone": (
        {"arrival": "closed", "storage_tier": "off", "cpu_mem_gb": 64, "device_profile": "nvme-gen4"},
        Status.NO,
        Binds.MEMORY,
    ),
    "few servers": (
        {"arrival": "closed", "num_users": 40, "servers": 4, "duration": 400},
        Status.UNDECIDED,
        Binds.LOAD,
    ),
    "one allocation at a time": (
        {
            "arrival": "closed",
            "num_users": 60,
            "max_concurrent_allocs": 1,
            "device_profile": "nvme-gen4",
            "generation_mode": "none",
        },
        Status.NO,
        Binds.ROOM,
    ),
    "open, storage too slow": (
        {"arrival": "open", "num_users": 20, "generation_mode": "none", "device_profile": "nvme-gen4"},
        Status.NO,
        Binds.DEVICE,
    ),
}


@cache
def of_load(name: str) -> Result:
    return simulated(**LOADS[name][0])


@pytest.mark.parametrize("name", LOADS)
def test_the_cause_is_the_one_that_was_made(name: str) -> None:
    _load, status, binds = LOADS[name]
    found = answer(of_load(name))
    assert (found.status, found.bottleneck.binds) == (status, binds), found


@pytest.mark.parametrize(
    ("servers", "share"), [(4, "share 4 servers"), (8, "share 8 servers"), (10, "keep the latency target")]
)
def test_users_who_share_busy_servers_have_the_same_answer_however_long_it_runs_s11(
    servers: int, share: str
) -> None:
    """A ratio of arrivals fell below 1 with the time, and a device without delay missed its targets."""
    load = {"arrival": "closed", "num_users": 10, "servers": servers}
    texts = set()
    for seconds in (200, 2000):
        result = simulated(**load, duration=seconds)
        texts.add(answer(result).verdict)
        assert contradictions(result) == []
    (verdict,) = texts
    assert share in verdict
    assert "times" not in verdict
    assert verdict.startswith("NO VERDICT" if servers < 10 else "YES")


def contradictions(result: Result) -> list[str]:
    """Sentences of one output that can't both be true."""
    found = answer(result)
    short, verbose = (" ".join(render_summary(result, verbose=long).split()) for long in (False, True))
    wrong = [
        f"not in the {name} form"
        for name, text in (("short", short), ("verbose", verbose))
        if result.requests_completed and found.because not in text
    ]
    everything = f"{short} {verbose}"
    of_storage = found.bottleneck.binds in STORAGE
    for claim in ("A faster device would change little", "whatever the storage", "pace, not the device"):
        if of_storage and claim in everything:
            wrong.append(f"storage binds, yet: {claim}")
    for claim in ("Use a faster device", "missed because cache I/O", "the device's own time"):
        if not of_storage and claim in everything:
            wrong.append(f"{found.bottleneck.binds} binds, yet: {claim}")
    if ("Queue wait dominates" in verbose) != (" for a server" in found.because):
        wrong.append("the queue dominates in one sentence only")
    if len(set(re.findall(r"(\w+) sets the pace", everything))) > 1:
        wrong.append("two things set the pace")
    missed = "missed" in short.split("Requests ")[0]
    if not result.autoscaling_stats and missed != (found.status is Status.NO):
        wrong.append(f"{found.verdict} beside the table of classes")
    if result.config["device_profile"] == "null" and of_storage:
        wrong.append("a device without delay binds")
    return wrong


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    num_users=st.sampled_from((1, 3, 12)),
    arrival=st.sampled_from(("open", "closed")),
    servers=st.sampled_from((None, 2)),
    generation_mode=st.sampled_from(("none", "fast", "realistic")),
    device_profile=st.sampled_from(("null", "sata-ssd", "nvme-gen4", "nvme-gen5")),
    cpu_mem_gb=st.sampled_from((0.0, 2.0, 64.0)),
    model=st.sampled_from(("tiny-1b", "llama3.1-8b")),
    io_model=st.sampled_from(("mlperf", "prefix", "stream")),
    storage_tier=st.sampled_from(("on", "on", "off")),
    seed=st.integers(0, 5),
)
def test_no_two_sentences_of_an_output_contradict_each_other(**load: Any) -> None:
    if load["storage_tier"] == "off":
        load["cpu_mem_gb"] = 64.0
    assert contradictions(simulated(**load, duration=40.0)) == []


@pytest.mark.parametrize("name", LOADS)
def test_no_sentence_contradicts_another_where_the_cause_is_known(name: str) -> None:
    assert contradictions(of_load(name)) == []


def test_a_search_is_answered_by_what_it_found() -> None:
    search = {"enable_autoscaling": True, "autoscaler_mode": "slo", "slo_target_ms": 9000, "max_users": 24}
    found = simulated(num_users=24, duration=900, device_profile="nvme-gen4", **search)
    result = answer(found)
    assert result.status is Status.FOUND
    assert result.verdict.startswith("FOUND (simulated): 24 users of llama3.1-8b. The highest load allowed")
    assert result.bottleneck.binds is Binds.DEVICE
    assert result.helps == "Give a higher --max-users to find how many can be held."
    shown = " ".join(render_summary(found, verbose=True).split())
    assert "Latency targets are missed" not in shown, "the search kept those that it was given"
    assert "Of the last window, by the classes' own targets; AUTOSCALING has the search's." in shown
    assert contradictions(found) == []
